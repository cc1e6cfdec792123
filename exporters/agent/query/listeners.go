package query

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

const (
	// namespacesAtOnce is at how many network namespaces one scan for unknown listeners reads, and namespacesAtStart at
	// how many the first one does: most nodes have fewer, so that --check names what listens in all of them.
	namespacesAtOnce  = 16
	namespacesAtStart = 256
	// maxUnknownListenersNamed bounds the programs that --check names.
	maxUnknownListenersNamed = 10
)

// unknownListeners are programs that listen where database servers do and that nobody knows: what a list of names of programs
// leaves out.
type unknownListeners struct {
	listeners *server.Listeners

	mu    sync.Mutex
	found server.UnknownListeners
	err   error
}

func newUnknownListeners(scanner *server.Scanner) *unknownListeners {
	return &unknownListeners{listeners: scanner.Listeners()}
}

// scan reads so many network namespaces, and logs each program that was not there before.
func (s *unknownListeners) scan(log *slog.Logger, most int) {
	found, err := s.listeners.Scan(most)
	s.mu.Lock()
	defer s.mu.Unlock()
	before := map[server.Listener]bool{}
	for _, l := range s.found.Listeners {
		before[l] = true
	}
	for _, l := range found.Listeners {
		if !before[l] {
			log.Debug("a program listens on a database's port and is no server that the agent knows; --query.server-name adds a name of one", "program", l.String())
		}
	}
	s.found, s.err = found, err
}

// send sends how many there are.
func (s *unknownListeners) send(ch chan<- prometheus.Metric, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]int{collector.ReasonNamespace: s.found.Beyond}
	for _, engine := range server.SystemsWithDefaultPort() {
		counts[string(engine)] = 0
	}
	for _, l := range s.found.Listeners {
		counts[string(l.DBSystem)]++
	}
	collector.SendUnidentified(ch, node, collector.KindListener, counts)
	collector.SendUnidentified(ch, node, collector.KindLine, map[string]int{collector.ReasonTCP: s.found.IncompleteNamespaces})
}

// check names them.
func (s *unknownListeners) check() exporterkit.CheckResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	result := exporterkit.CheckResult{Part: "query: listeners", Optional: true,
		Note: "programs on databases' ports that are no known servers are in no metric; --query.server-name adds a name of one"}
	switch all := s.found.Listeners; {
	case len(all) > 0:
		var names []string
		for _, l := range all[:min(len(all), maxUnknownListenersNamed)] {
			names = append(names, l.String())
		}
		if more := len(all) - len(names); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		result.Err = errors.New(strings.Join(names, "; "))
	case s.err != nil:
		result.Err = inShort(s.err)
	}
	return result
}
