"""What a run leaves behind: operations, history, journal, verdict, store, report. Floor 1: imports no other room."""
