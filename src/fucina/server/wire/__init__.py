"""What goes over the wire: the requests and answers of each dialect, as types."""
