//! Tomcat with one servlet, over AJP13.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Listen, Program, find, missing, put, run, text};

/// Paths of Tomcat in distributions.
const HOMES: [&str; 4] =
    ["/usr/share/tomcat10", "/usr/share/tomcat11", "/usr/share/tomcat9", "/opt/tomcat"];

/// A running Tomcat.
pub struct Tomcat {
    program: Program,
    listen: Listen,
}

impl Tomcat {
    /// Starts a server with one servlet for all requests, the class `name` with this source.
    #[must_use]
    pub fn start(name: &str, source: &str, secret: &str) -> Option<Self> {
        Self::start_at(Listen::free_port(), name, source, secret)
    }

    /// Like [`Tomcat::start`], on this port.
    #[must_use]
    pub fn start_at(listen: Listen, name: &str, source: &str, secret: &str) -> Option<Self> {
        let (java, javac) = (find(&["java"])?, find(&["javac"])?);
        let Some(home) = HOMES.iter().map(Path::new).find(|home| home.join("bin").is_dir()) else {
            missing("tomcat10");
            return None;
        };
        let directory = Program::directory();
        let base = directory.path();
        for needed in ["logs", "temp", "work", "webapps/ROOT/WEB-INF/classes"] {
            std::fs::create_dir_all(base.join(needed)).expect("a directory");
        }
        put(&directory, "conf/server.xml", server_xml(&listen, secret));
        put(&directory, "webapps/ROOT/WEB-INF/web.xml", web_xml(name));
        let file = format!("{name}.java");
        put(&directory, &file, source);
        run(Command::new(javac)
            .args(["-proc:none", "-cp", text(&home.join("lib/servlet-api.jar")), "-d"])
            .arg(base.join("webapps/ROOT/WEB-INF/classes"))
            .arg(base.join(&file)));
        let line = command_line(&java, home, base);
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let mut program = Program::start(directory, &line, &[]);
        // CPing and CPong of AJP13.
        program.await_response(&listen, &[0x12, 0x34, 0, 1, 10], &[b'A', b'B', 0, 1, 9]);
        Some(Self { program, listen })
    }

    /// Address of the listener.
    #[must_use]
    pub fn listen(&self) -> &Listen {
        &self.listen
    }

    /// Tomcat's output.
    #[must_use]
    pub fn log(&self) -> String {
        self.program.log()
    }
}

fn command_line(java: &Path, home: &Path, base: &Path) -> Vec<String> {
    let jar = |name: &str| home.join("bin").join(name).display().to_string();
    let property = |name: &str, path: PathBuf| format!("-D{name}={}", path.display());
    let classes = format!("{}:{}", jar("bootstrap.jar"), jar("tomcat-juli.jar"));
    let own = [
        text(java),
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xmx256m",
        "-Xshare:auto",
        "-cp",
        &classes,
    ];
    let mut line: Vec<String> = own.map(str::to_owned).to_vec();
    line.push(property("catalina.home", home.to_owned()));
    line.push(property("catalina.base", base.to_owned()));
    line.push(property("java.io.tmpdir", base.join("temp")));
    line.extend(["org.apache.catalina.startup.Bootstrap", "start"].map(str::to_owned));
    line
}

fn server_xml(listen: &Listen, secret: &str) -> String {
    let (ip, port) = (listen.address().ip(), listen.address().port());
    let secret = match secret {
        "" => "secretRequired=\"false\"".to_owned(),
        some => format!("secretRequired=\"true\" secret=\"{some}\""),
    };
    format!(
        "<Server port=\"-1\"><Service name=\"Catalina\">\
         <Connector protocol=\"AJP/1.3\" address=\"{ip}\" port=\"{port}\" {secret} \
         maxPostSize=\"-1\" keepAliveTimeout=\"60000\" allowedRequestAttributesPattern=\".*\"/>\
         <Engine name=\"Catalina\" defaultHost=\"localhost\">\
         <Host name=\"localhost\" appBase=\"webapps\" autoDeploy=\"false\"/>\
         </Engine></Service></Server>\n"
    )
}

fn web_xml(name: &str) -> String {
    format!(
        "<web-app xmlns=\"https://jakarta.ee/xml/ns/jakartaee\" version=\"6.0\" \
         metadata-complete=\"true\"><absolute-ordering/><servlet><servlet-name>it</servlet-name>\
         <servlet-class>{name}</servlet-class><load-on-startup>1</load-on-startup></servlet>\
         <servlet-mapping><servlet-name>it</servlet-name><url-pattern>/*</url-pattern>\
         </servlet-mapping></web-app>\n"
    )
}
