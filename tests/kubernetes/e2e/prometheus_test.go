//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// api queries Prometheus; into is what the answer's data is read into.
func (n *node) api(path string, into any) error {
	if n.prometheus == "" {
		address, err := n.try("get", "pod", "prometheus-e2e-0", "--namespace=monitoring", "--output=jsonpath={.status.podIP}")
		if err != nil {
			return err
		}
		n.prometheus = address
	}
	client := http.Client{Timeout: 20 * time.Second}
	response, err := client.Get("http://" + n.prometheus + ":9090/api/v1/" + path)
	if err != nil {
		n.prometheus = "" // the pod may have another one by now
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %w", response.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("Prometheus: %s", answer.Error)
	}
	return json.Unmarshal(answer.Data, into)
}

// series is a result of an instant query.
type series struct {
	Metric map[string]string
	Value  [2]any
}

func (n *node) query(expression string) ([]series, error) {
	var answer struct{ Result []series }
	err := n.api("query?query="+url.QueryEscape(expression), &answer)
	return answer.Result, err
}

// some is nil if an expression has a result.
func (n *node) some(expression string) func() error {
	return func() error {
		found, err := n.query(expression)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("no result of %s", expression)
		}
		return err
	}
}

// none is nil if an expression has no result.
func (n *node) none(expression string) func() error {
	return func() error {
		found, err := n.query(expression)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("%d results of %s: %v", len(found), expression, found[0])
		}
		return err
	}
}

// targetsUp is nil once exactly the wanted jobs are scraped, and all their targets are up.
func (n *node) targetsUp(want map[string]int) error {
	var answer struct {
		ActiveTargets []struct{ ScrapePool, Health, LastError string }
	}
	if err := n.api("targets?state=active", &answer); err != nil {
		return err
	}
	got := map[string]int{}
	for _, t := range answer.ActiveTargets {
		// podMonitor/NAMESPACE/NAME/0
		job := strings.Join(strings.Split(t.ScrapePool, "/")[1:3], "/")
		if t.Health != "up" {
			return fmt.Errorf("%s is %s: %s", job, t.Health, t.LastError)
		}
		got[job]++
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("targets are %v, want %v", got, want)
	}
	return nil
}

// rulesLoaded is nil once so many groups are loaded and each of their rules was evaluated
// without an error.
func (n *node) rulesLoaded(groups int) error {
	var answer struct {
		Groups []struct {
			Name  string
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := n.api("rules", &answer); err != nil {
		return err
	}
	if len(answer.Groups) != groups {
		return fmt.Errorf("%d groups of rules, want %d", len(answer.Groups), groups)
	}
	for _, g := range answer.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				return fmt.Errorf("group %s, rule %s: %s %s", g.Name, r.Name, r.Health, r.LastError)
			}
		}
	}
	return nil
}
