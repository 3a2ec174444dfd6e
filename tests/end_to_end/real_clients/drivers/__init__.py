"""Real client libraries behind one small protocol. These files run in an environment of their own."""
