//! The engine under a scripted selector.
