package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/tests/freeport"
	"github.com/plumbline/plumbline/tests/rig"
)

// findGrafana returns the command that starts the server of a Grafana's home folder.
func findGrafana(home string) ([]string, error) {
	if home == "" {
		return nil, fmt.Errorf("which Grafana? Give its home folder, that with bin, conf and public, by GRAFANA_HOME or --grafana; " +
			"no package registry has one: unpack an archive of grafana.com, or take /usr/share/grafana of its package")
	}
	for _, c := range [][]string{{"bin/grafana", "server"}, {"bin/grafana-server"}} {
		path := filepath.Join(home, c[0])
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return append([]string{path}, c[1:]...), nil
		}
	}
	return nil, fmt.Errorf("%s has no program bin/grafana or bin/grafana-server: GRAFANA_HOME is the folder with bin, conf and public", home)
}

// startGrafana returns the address of a Grafana with the dashboards over a Prometheus. Everybody may view; it queries
// nothing outside.
func startGrafana(ctx context.Context, t *rig.Scope, folder, home, dashboards, prometheus string) string {
	command, err := findGrafana(home)
	t.Check(err)
	address, err := freeport.Address()
	t.Check(err)
	dashboards, err = filepath.Abs(dashboards)
	t.Check(err)
	provision(t, folder, "datasources", map[string]any{"apiVersion": 1, "datasources": []any{map[string]any{
		"name": "Prometheus", "uid": "prometheus", "type": "prometheus", "access": "proxy", "url": "http://" + prometheus, "isDefault": true,
		"jsonData": map[string]any{"timeInterval": "30s"},
	}}})
	provision(t, folder, "dashboards", map[string]any{"apiVersion": 1, "providers": []any{map[string]any{
		"name": "plumbline", "folder": "Plumbline", "type": "file", "options": map[string]any{"path": dashboards},
	}}})
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], "--homepath="+home)...)
	cmd.Dir = folder
	host, port, _ := strings.Cut(address, ":")
	cmd.Env = append(os.Environ(),
		"GF_SERVER_HTTP_ADDR="+host, "GF_SERVER_HTTP_PORT="+port,
		"GF_PATHS_DATA="+folder, "GF_PATHS_LOGS="+filepath.Join(folder, "logs"), "GF_PATHS_PLUGINS="+filepath.Join(folder, "plugins"),
		"GF_PATHS_PROVISIONING="+filepath.Join(folder, "provisioning"),
		"GF_AUTH_ANONYMOUS_ENABLED=true", "GF_AUTH_ANONYMOUS_ORG_ROLE=Viewer",
		"GF_ANALYTICS_REPORTING_ENABLED=false", "GF_ANALYTICS_CHECK_FOR_UPDATES=false", "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES=false",
		"GF_SECURITY_DISABLE_GRAVATAR=true", "GF_NEWS_NEWS_FEED_ENABLED=false", "GF_PLUGINS_PLUGIN_ADMIN_ENABLED=false", "GF_PLUGINS_PREINSTALL_DISABLED=true",
		"GF_LOG_LEVEL=warn")
	rig.Start(t, cmd)
	rig.Eventually(t, ready, func() error { return answers(ctx, "http://"+address+"/api/health") })
	// The dashboards are read after the server answers.
	for _, uid := range uids(t, dashboards) {
		rig.Eventually(t, ready, func() error { return answers(ctx, "http://"+address+"/api/dashboards/uid/"+uid) })
	}
	return address
}

func provision(t *rig.Scope, folder, what string, content map[string]any) {
	data, err := yaml.Marshal(content)
	t.Check(err)
	path := filepath.Join(folder, "provisioning", what)
	t.Check(os.MkdirAll(path, 0o755))
	t.Check(os.WriteFile(filepath.Join(path, "plumbline.yaml"), data, 0o644))
}

// uids are the dashboards' names, which their files have, too.
func uids(t *rig.Scope, dashboards string) []string {
	paths, err := filepath.Glob(filepath.Join(dashboards, "*.json"))
	t.Check(err)
	if len(paths) == 0 {
		t.Fatalf("%s has no dashboards", dashboards)
	}
	for i, path := range paths {
		paths[i] = strings.TrimSuffix(filepath.Base(path), ".json")
	}
	return paths
}
