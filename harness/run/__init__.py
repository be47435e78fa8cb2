"""One run: its phases, and the interpreter that lets clients and the nemesis do what generators say."""
