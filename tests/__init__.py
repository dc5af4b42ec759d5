"""The suite mirrors the packages: tests/engine, tests/server, tests/ui, tests/app; tests/contract speaks HTTP as a client would."""
