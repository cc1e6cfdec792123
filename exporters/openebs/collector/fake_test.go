package collector

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sort"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// fakeMayastor is not Mayastor: it is a server whose answers are made from the published
// OpenAPI schemas, with every field or with the required ones only.
type fakeMayastor struct {
	url string

	mu      sync.Mutex
	answers map[string]any // by path; a volume list is cut into pages of one
	status  int            // of every answer, if not 200
	raw     string         // instead of every answer, if not empty
	hang    chan struct{}  // every answer waits for it, if not nil
	stuck   string         // the path that is never answered, if not empty
}

func startMayastor(t *testing.T, answers map[string]any) *fakeMayastor {
	t.Helper()
	f := &fakeMayastor{answers: answers}
	server := httptest.NewServer(http.HandlerFunc(f.serve))
	f.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return f
}

func (f *fakeMayastor) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	hang, code, raw := f.hang, f.status, f.raw
	if f.stuck != "" && strings.HasSuffix(r.URL.Path, f.stuck) {
		hang = make(chan struct{})
	}
	answer, ok := f.answers[strings.TrimPrefix(r.URL.Path, "/v0")]
	body, err := json.Marshal(page(answer, r.URL.Query().Get("starting_token")))
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case code != 0:
		http.Error(w, "made to fail", code)
	case raw != "":
		fmt.Fprint(w, raw)
	case !ok || err != nil:
		http.NotFound(w, r)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Write(body)
	}
}

// page is the page of a volume list that starts at token; other answers are whole.
func page(answer any, token string) any {
	list, ok := answer.(map[string]any)
	if !ok {
		return answer
	}
	entries, _ := list["entries"].([]any)
	start := 0
	fmt.Sscan(token, &start)
	if start >= len(entries) {
		return map[string]any{"entries": []any{}}
	}
	result := map[string]any{"entries": entries[start : start+1]}
	if start+1 < len(entries) {
		result["next_token"] = start + 1
	}
	return result
}

func (f *fakeMayastor) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// apiSchema is what is used of an OpenAPI schema.
type apiSchema struct {
	Ref        string               `yaml:"$ref"`
	Type       string               `yaml:"type"`
	Enum       []string             `yaml:"enum"`
	Required   []string             `yaml:"required"`
	Properties map[string]apiSchema `yaml:"properties"`
	Items      *apiSchema           `yaml:"items"`
	AllOf      []apiSchema          `yaml:"allOf"`
	OneOf      []apiSchema          `yaml:"oneOf"`
	Additional yaml.Node            `yaml:"additionalProperties"`
}

// sampler makes values that follow schemas.
type sampler struct {
	schemas map[string]apiSchema
	full    bool           // every field, not only the required ones
	hints   map[string]any // values by field name
}

func newSampler(t *testing.T, full bool, hints map[string]any) *sampler {
	t.Helper()
	raw, err := os.ReadFile("testdata/openapi-v0.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Schemas map[string]apiSchema `yaml:"schemas"`
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	return &sampler{file.Schemas, full, hints}
}

func (s *sampler) of(name string) any { return s.value(name, s.schemas[name]) }

func (s *sampler) value(field string, of apiSchema) any {
	if of.Ref != "" {
		return s.value(field, s.schemas[of.Ref[strings.LastIndex(of.Ref, "/")+1:]])
	}
	if len(of.AllOf) > 0 {
		return s.value(field, of.AllOf[0])
	}
	if hint, ok := s.hints[field]; ok && of.Type != "object" {
		return hint
	}
	switch of.Type {
	case "object":
		return s.object(field, of)
	case "array":
		return []any{s.value(field, *of.Items)}
	case "integer":
		return 4096
	case "boolean":
		return true
	}
	if len(of.Enum) > 1 {
		return of.Enum[1]
	}
	if len(of.Enum) == 1 {
		return of.Enum[0]
	}
	return "some " + field
}

func (s *sampler) object(field string, of apiSchema) any {
	o := map[string]any{}
	names := of.Required
	if s.full {
		names = nil
		for name := range of.Properties {
			names = append(names, name)
		}
	}
	if len(of.OneOf) > 0 {
		names = of.OneOf[0].Required
	}
	sort.Strings(names)
	for _, name := range names {
		if property, ok := of.Properties[name]; ok {
			o[name] = s.value(name, property)
		}
	}
	var additional apiSchema
	if of.Additional.Kind == yaml.MappingNode && of.Additional.Decode(&additional) == nil {
		key := "key"
		if hint, ok := s.hints[field].(string); ok {
			key = hint
		}
		o[key] = s.value("", additional)
	}
	return o
}

// fakeIOEngine is not io-engine: it answers ListNexus and GetRebuildStats with bytes.
type fakeIOEngine struct {
	endpoint string

	mu      sync.Mutex
	nexuses []byte
	stats   map[string][]byte // by child's URI
}

func startIOEngine(t *testing.T) *fakeIOEngine {
	t.Helper()
	f := &fakeIOEngine{stats: map[string][]byte{}}
	server := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(f.serve))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.endpoint = listener.Addr().String()
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return f
}

func (f *fakeIOEngine) serve(_ any, stream grpc.ServerStream) error {
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch method, _ := grpc.MethodFromServerStream(stream); method {
	case "/mayastor.v1.NexusRpc/ListNexus":
		return stream.SendMsg(&f.nexuses)
	case "/mayastor.v1.NexusRpc/GetRebuildStats":
		uri := ""
		fields(request, func(number protowire.Number, _ uint64, bytes []byte) error {
			if number == 2 {
				uri = string(bytes)
			}
			return nil
		})
		answer, ok := f.stats[uri]
		if !ok {
			return status.Error(codes.NotFound, "no rebuild of "+uri)
		}
		return stream.SendMsg(&answer)
	default:
		return status.Error(codes.Unimplemented, method)
	}
}

// message encodes fields given as number, value (string, []byte or int) in turn.
func message(pairs ...any) []byte {
	var m []byte
	for i := 0; i < len(pairs); i += 2 {
		number := protowire.Number(pairs[i].(int))
		switch v := pairs[i+1].(type) {
		case string:
			m = protowire.AppendString(protowire.AppendTag(m, number, protowire.BytesType), v)
		case []byte:
			m = protowire.AppendBytes(protowire.AppendTag(m, number, protowire.BytesType), v)
		case int:
			m = protowire.AppendVarint(protowire.AppendTag(m, number, protowire.VarintType), uint64(int64(v)))
		}
	}
	return m
}
