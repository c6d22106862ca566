"""What the server does for each path, one file a dialect."""
