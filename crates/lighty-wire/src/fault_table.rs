//! One row per fault: variant, name in logs, message.

/// Generates an enum of faults from its table: `ALL`, `slug`, `words`, and the traits of an error.
macro_rules! fault_table {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $slug:literal, $words:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the words of each variant document it")]
        pub enum $name {
            $(#[doc = $words] $variant,)*
        }

        impl $name {
            /// Every fault, for tests and the manual.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// A stable name for logs and counters.
            #[must_use]
            pub const fn slug(self) -> &'static str {
                match self {
                    $(Self::$variant => $slug,)*
                }
            }

            /// The reason in words.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    $(Self::$variant => $words,)*
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.words())
            }
        }

        impl core::error::Error for $name {}
    };
}

pub(crate) use fault_table;
