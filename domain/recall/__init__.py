"""The record of token ids: what is added, where it is found again, and when a copy from it is offered.

Pure rules over ids; files, threads and clients are elsewhere. Nothing here can change a token: what is found is drafted
and verified like any other draft.
"""
