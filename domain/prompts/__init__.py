"""Where a prompt may be cut, which of its states are kept, and which kept state a prompt resumes from."""
