//! A gnuplot script with its data.

use std::io::{self, Write};

use super::series::{Series, WAITS, mean_of};

pub(super) fn write(series: &Series, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "# Mean milliseconds of a request, by the time at which its response began.")?;
    writeln!(out, "$times << EOD")?;
    write!(out, "time requests longest")?;
    for (name, _) in WAITS {
        write!(out, " {name}")?;
    }
    for name in &series.stages {
        write!(out, " {name}")?;
    }
    writeln!(out)?;
    for (at_us, bucket) in series.buckets() {
        let longest_ms = bucket.longest_us as f64 / 1e3;
        write!(out, "{:.6} {} {longest_ms:.3}", at_us as f64 / 1e6, bucket.requests)?;
        for (_, names) in WAITS {
            write!(out, " {:.3}", mean_of(series, &bucket, names))?;
        }
        for stage in 0..series.stages.len() {
            write!(out, " {:.3}", bucket.mean_ms(stage))?;
        }
        writeln!(out)?;
    }
    let (waits, stages) = (3 + WAITS.len(), series.stages.len());
    writeln!(
        out,
        "EOD\n\
         set terminal svg size 1000,800 dynamic\n\
         set output 'timing.svg'\n\
         set multiplot layout 2,1\n\
         set xdata time\n\
         set timefmt '%s'\n\
         set format x '%H:%M:%S'\n\
         set ylabel 'ms'\n\
         set key outside autotitle columnhead noenhanced\n\
         set style fill solid\n\
         plot for [column=4:{waits}] $times using 1:column with lines"
    )?;
    match stages {
        0 => Ok(()),
        // The cumulative sum of the stages, drawn from the highest to the lowest.
        _ => writeln!(
            out,
            "plot for [last={}:{}:-1] $times using 1:(sum [column={}:last] column(column)) \
             with boxes title columnhead(last)",
            waits + stages,
            waits + 1,
            waits + 1,
        ),
    }
}
