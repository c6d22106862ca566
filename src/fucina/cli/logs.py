"""What a server says while it runs, on stderr: a line for people, or a JSON object for programs."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


def set_up_logs(form: str) -> None:
    """Log from INFO on, as 'text' or 'json'. Nothing that is logged holds what a request says."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines() if form == "json" else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # its start and end are told in our own words


class _JsonLines(logging.Formatter):
    """One JSON object a record, with whatever fields it carries."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
