"""Start or attach to a server, talk to it, read its log, and leave nothing behind."""
