"""What tests of Waystation, and of programs that use it, are made with."""
