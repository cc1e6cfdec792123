package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/try"
)

// cluster is a Kubernetes API server, queried by plain GET requests as with kubectl get --raw.
type cluster struct {
	o      options
	base   *url.URL
	client *http.Client
	now    func() time.Time
	// none is why there is no API server, only Prometheus; nil if there is one.
	none error
	// candidateTimeout is how long a candidate for Prometheus may take to answer; the default one if it is 0.
	candidateTimeout time.Duration
	// mostAnswer is how many bytes an answer of Prometheus may have; mostOfPrometheus if it is 0.
	mostAnswer int64
	// silent also accepts a Prometheus without any series of Plumbline, to find out why it has none.
	silent bool
	// chosen is the Prometheus that was chosen, as its user would name it; notes, if there is one, gets which it is and
	// why.
	chosen string
	notes  io.Writer
	// scraped, if there is one, gets a measurement after each scrape of the exporters.
	scraped func(*try.Measurement)
}

func newCluster(config *rest.Config, o options) (*cluster, error) {
	client, base, err := kube.Client(config, time.Minute)
	if err != nil {
		return nil, err
	}
	return &cluster{o: o, base: base, client: client, notes: os.Stderr, now: time.Now}, nil
}

// statusError is an API server's refusal.
type statusError struct {
	method, path, message string
	code                  int
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the API server answers %d to %s %s: %s", e.code, e.method, e.path, e.message)
}

// errNoCluster means that no API server is known, errOther that the query is about a cluster which need not be
// kubectl's.
var (
	errNoCluster = errors.New("no cluster")
	errOther     = errors.New("kubectl's cluster may be another one than --cluster names")
)

// answered reports whether the API server returned this code.
func answered(err error, code int) bool {
	var status *statusError
	return errors.As(err, &status) && status.code == code
}

// refused reports whether the API server forbids it to the user.
func refused(err error) bool { return answered(err, http.StatusForbidden) }

// unknown reports whether the API server does not show the user if an object exists, while Prometheus may know it: it
// does not know the user or refuses, or there is none. With an address of Prometheus' own, it is also true if the API
// server fails.
func (c *cluster) unknown(err error) bool {
	if c.o.url != "" {
		return err != nil && !answered(err, http.StatusNotFound)
	}
	return refused(err) || answered(err, http.StatusUnauthorized) || errors.Is(err, errNoCluster) || errors.Is(err, errOther)
}

// get reads an object of the API.
func (c *cluster) get(ctx context.Context, path string, query url.Values, into any) error {
	return c.send(ctx, http.MethodGet, path, query, nil, into)
}

// send sends a request with an object, if there is one, to the API, and reads the one that it answers with.
func (c *cluster) send(ctx context.Context, method, path string, query url.Values, object []byte, into any) error {
	if c.none != nil {
		return c.none
	}
	u := c.base.JoinPath(path)
	u.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(object))
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	answer, err := c.client.Do(request)
	if err != nil {
		return expired(err)
	}
	defer answer.Body.Close()
	const most = 256 << 20
	body, err := io.ReadAll(io.LimitReader(answer.Body, most))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if answer.StatusCode/100 != 2 {
		var status struct{ Message string }
		if json.Unmarshal(body, &status) != nil || status.Message == "" {
			status.Message = answer.Status
		}
		return &statusError{method, path, status.Message, answer.StatusCode}
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// expired adds to an error what to do about a certificate that is refused for its time.
func expired(err error) error {
	if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return fmt.Errorf("%w: renew the certificate, or set the clock of this machine if it is wrong", err)
	}
	return err
}

// meta is what is read of every object.
type meta struct {
	Name, Namespace     string
	Labels, Annotations map[string]string
}

// claim checks that there is a claim. For a cluster that is named, Prometheus reports it: kubectl's may be another one.
func (c *cluster) claim(ctx context.Context, namespace, name string) error {
	if c.o.clusterNamed {
		return nil
	}
	var claim struct {
		Spec struct{ VolumeName string }
	}
	if err := c.get(ctx, "/api/v1/namespaces/"+namespace+"/persistentvolumeclaims/"+name, nil, &claim); err != nil {
		if c.unknown(err) {
			return nil // Prometheus reports whether it knows it
		}
		return err
	}
	if claim.Spec.VolumeName == "" {
		return fmt.Errorf("claim %s/%s has no volume yet", namespace, name)
	}
	return nil
}

// claimsOf lists the claims that a pod mounts. It does not query kubectl's cluster if another one is named, which may
// have another pod of this name.
func (c *cluster) claimsOf(ctx context.Context, namespace, name string) ([]string, error) {
	if c.o.clusterNamed {
		return nil, errOther
	}
	var pod struct {
		Spec struct {
			Volumes []struct{ PersistentVolumeClaim *struct{ ClaimName string } }
		}
	}
	if err := c.get(ctx, "/api/v1/namespaces/"+namespace+"/pods/"+name, nil, &pod); err != nil {
		return nil, err
	}
	var claims []string
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			claims = append(claims, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return claims, nil
}

// prometheusBehind is a Prometheus behind the API server's proxy.
func (c *cluster) prometheusBehind(namespace, name, port string) (promv1.API, error) {
	return c.prometheusAt(c.base.JoinPath("api/v1/namespaces", namespace, "services", name+":"+port, "proxy").String(), c.client, true)
}

func (c *cluster) prometheusAt(address string, client *http.Client, proxied bool) (promv1.API, error) {
	prometheus, err := api.NewClient(api.Config{Address: address, RoundTripper: readOnly{client, proxied, cmp.Or(c.mostAnswer, mostOfPrometheus)}})
	if err != nil {
		return nil, err
	}
	return promv1.NewAPI(prometheus), nil
}

// readOnly makes a GET of each POST, so that the right to "get" is enough for queries through the API server.
type readOnly struct {
	client *http.Client
	// proxied means that a service is queried through the API server, with the user's rights there.
	proxied bool
	// most is how many bytes an answer may have.
	most int64
}

// mostOfPrometheus is more than the answers about a large cluster's volumes have.
const mostOfPrometheus = 256 << 20

// mostQuery is the longest query that is sent by GET; API servers and the proxies before them accept at least 8 KiB.
const mostQuery = 7 << 10

// RoundTrip is http.RoundTripper's.
func (r readOnly) RoundTrip(request *http.Request) (*http.Response, error) {
	transport := r.client.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	if request.Method == http.MethodPost && request.Body != nil {
		body, err := io.ReadAll(request.Body)
		request.Body.Close()
		if err != nil {
			return nil, err
		}
		if len(body) > mostQuery {
			return nil, fmt.Errorf("a query of %d bytes is too long for GET", len(body))
		}
		request = request.Clone(request.Context())
		request.Method, request.Body, request.ContentLength = http.MethodGet, nil, 0
		request.URL.RawQuery = string(body)
		request.Header.Del("Content-Type")
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, expired(err)
	}
	if to := answer.Header.Get("Location"); r.proxied && to != "" {
		// It would be followed with the user's token, whatever host it leads to.
		answer.Body.Close()
		return nil, fmt.Errorf("it answers with a redirect to %q, which is not followed: is it Prometheus?", to)
	}
	if answer.StatusCode < http.StatusBadRequest {
		answer.Body = &bounded{answer.Body, r.most, r.most}
		return answer, nil
	}
	// The API server's own refusal is not one of Prometheus', and has the reason.
	const most = 64 << 10
	body, err := io.ReadAll(io.LimitReader(answer.Body, most))
	answer.Body.Close()
	if err != nil {
		return nil, err
	}
	var status struct{ Kind, Message string }
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		return nil, &statusError{request.Method, request.URL.Path, status.Message, answer.StatusCode}
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}

// bounded is a response's body that is read up to most bytes.
type bounded struct {
	io.ReadCloser
	left, most int64
}

// Read is io.Reader's.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", b.most)
	}
	return n, err
}
