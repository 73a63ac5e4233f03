//! A macro for tables of faults, with one row per fault: variant, name in logs, message.

/// Generates an enum of faults from its table: `ALL`, `slug`, `message`, and the traits of an
/// error. With a column between name and table, each row begins with a constant of the column's
/// type. A last row that begins with two dots wraps the faults of another type.
#[macro_export]
macro_rules! fault_table {
    (
        $(#[$doc:meta])* $name:ident, $(#[$column_doc:meta])* $column:ident: $type:ident {
            $($variant:ident = $value:ident, $slug:literal, $message:literal;)*
            $(.. $wrapped:ident($inner:ident) = $wrapped_value:ident;)?
        }
    ) => {
        $crate::fault_table! {
            $(#[$doc])*
            $name {
                $($variant = $slug, $message;)*
                $(.. $wrapped($inner);)?
            }
        }

        impl $name {
            $(#[$column_doc])*
            #[must_use]
            pub const fn $column(self) -> $type {
                match self {
                    $(Self::$variant => $type::$value,)*
                    $(Self::$wrapped(_) => $type::$wrapped_value,)?
                }
            }
        }
    };
    (
        $(#[$doc:meta])* $name:ident {
            $($variant:ident = $slug:literal, $message:literal;)*
            $(.. $wrapped:ident($inner:ident);)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the words of each variant document it")]
        pub enum $name {
            $(#[doc = $message] $variant,)*
            $(#[doc = concat!("See [`", stringify!($inner), "`].")] $wrapped($inner),)?
        }

        impl $name {
            /// Every fault of the table itself, for tests and the manual.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// A stable name for logs and counters.
            #[must_use]
            pub const fn slug(self) -> &'static str {
                match self {
                    $(Self::$variant => $slug,)*
                    $(Self::$wrapped(fault) => fault.slug(),)?
                }
            }

            /// The message. For an exceeded limit, it contains the limit's name.
            #[must_use]
            pub const fn message(self) -> &'static str {
                match self {
                    $(Self::$variant => $message,)*
                    $(Self::$wrapped(fault) => fault.message(),)?
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.message())
            }
        }

        impl core::error::Error for $name {}
    };
}
