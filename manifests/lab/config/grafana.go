package config

import (
	"os"
	"os/exec"
	"path/filepath"
)

// FindGrafana looks for an installed Grafana: in GRAFANA_HOME, else by the program in PATH
// and the home folder that its packages use.
func (l *Lab) FindGrafana() {
	home := os.Getenv("GRAFANA_HOME")
	if home != "" {
		for _, server := range []string{"bin/grafana", "bin/grafana-server"} {
			if path := filepath.Join(home, server); executable(path) {
				l.GrafanaHome, l.GrafanaServer = home, grafanaCommand(path)
				return
			}
		}
	}
	for _, name := range []string{"grafana", "grafana-server"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		l.GrafanaHome, l.GrafanaServer = "/usr/share/grafana", grafanaCommand(path)
		return
	}
}

// grafanaCommand returns the command that starts the server: newer Grafanas have one program
// with sub-commands.
func grafanaCommand(path string) string {
	if filepath.Base(path) == "grafana" {
		return path + " server"
	}
	return path
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
