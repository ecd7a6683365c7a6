"""What a recorded run adds from Python, and a reader of recordings.

`rankcheck record -- COMMAND` activates it in every Python process of the command. Nothing here imports torch.
"""

from .reader import Address, Call, Event, Process, RecordingError, read, read_file

__all__ = ["Address", "Call", "Event", "Process", "RecordingError", "read", "read_file"]
