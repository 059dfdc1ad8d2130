//! Wrong histories, one per check.
