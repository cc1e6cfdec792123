package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/tests/testkit"
)

// built is the program under test, made once.
var built = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "loadgen-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "loadgen")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return path, fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests wait for servers and seconds to pass more than they compute.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	code := m.Run()
	if path, _ := built(); path != "" {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func binary(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// server is a running loadgen.
type server struct {
	t   *testing.T
	cmd *exec.Cmd
	url string

	mu     sync.Mutex
	output strings.Builder
}

// log is its output so far.
func (s *server) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.String()
}

var listening = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

// start runs a sub-command with further variables in its environment.
func start(t *testing.T, args []string, environment ...string) *server {
	t.Helper()
	s := &server{t: t, cmd: exec.Command(binary(t), append(args, "--web.listen-address=127.0.0.1:0")...)}
	s.cmd.Env = append(os.Environ(), environment...)
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		}
	})
	address := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			s.mu.Lock()
			s.output.WriteString(lines.Text() + "\n")
			s.mu.Unlock()
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				address <- m[1]
			}
		}
		close(address)
	}()
	select {
	case a, ok := <-address:
		if !ok {
			t.Fatal("loadgen ended before it listened")
		}
		s.url = "http://" + a
	case <-time.After(testkit.DefaultTimeout):
		t.Fatal("loadgen does not listen")
	}
	return s
}

// ended waits for a program that is about to end, and kills one that does not.
func ended(c *exec.Cmd) error {
	late := time.AfterFunc(testkit.DefaultTimeout, func() { _ = c.Process.Kill() })
	defer late.Stop()
	return c.Wait()
}

// stop ends it as a supervisor would, and returns its exit code.
func (s *server) stop() int {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = ended(s.cmd)
	return s.cmd.ProcessState.ExitCode()
}

// scrape reads /metrics.
func (s *server) scrape() (map[string]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.DefaultTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(answer.Body)
}

// value is the sum of the series of a family that carry all of labels ("name=value").
func value(families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	sum := 0.0
series:
	for _, m := range families[name].GetMetric() {
		have := map[string]bool{}
		for _, l := range m.GetLabel() {
			have[l.GetName()+"="+l.GetValue()] = true
		}
		for _, l := range labels {
			if !have[l] {
				continue series
			}
		}
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return sum
}
