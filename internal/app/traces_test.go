package app

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/auditrelay/auditrelay/config/secret"
)

// spanReceiver is an OTLP receiver. It keeps the bodies, and refuses them while broken.
type spanReceiver struct {
	mu     sync.Mutex
	spans  []*tracepb.Span // guarded by mu
	bodies []byte          // guarded by mu
	tokens []string        // guarded by mu
}

func (s *spanReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	plain, err := gzip.NewReader(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(plain)
	request := &collector.ExportTraceServiceRequest{}
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, request) != nil {
		http.Error(w, "no spans", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies = append(s.bodies, body...)
	s.tokens = append(s.tokens, r.Header.Get("Authorization"))
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			s.spans = append(s.spans, scope.GetSpans()...)
		}
	}
}

// byName gives the spans of each trace, by the trace and the name.
func (s *spanReceiver) byName() map[string]map[string]*tracepb.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]map[string]*tracepb.Span{}
	for _, span := range s.spans {
		id := hex.EncodeToString(span.GetTraceId())
		if all[id] == nil {
			all[id] = map[string]*tracepb.Span{}
		}
		all[id][span.GetName()] = span
	}
	return all
}

func numberOf(s *tracepb.Span, attribute string) int64 {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == attribute {
			return a.GetValue().GetIntValue()
		}
	}
	return 0
}

func TestAPushIsTracedToItsSinks(t *testing.T) {
	t.Parallel()
	receiver := &spanReceiver{}
	server := httptest.NewServer(receiver)
	defer server.Close()
	cfg := testConfig(t.TempDir())
	cfg.Traces.Endpoint, cfg.Traces.Ratio = server.URL+"/v1/traces", 1
	cfg.Traces.Headers = map[string]secret.Text{"Authorization": secret.New("Bearer token")}
	r := start(t, cfg)
	for _, id := range []string{"one", "two", "three"} {
		status, text := r.push(id, id+"-b")
		require.Equal(t, http.StatusNoContent, status, text)
	}
	r.arrived("one", "two", "three")
	require.NoError(t, r.stop(), "the end sends what is left")

	traces := receiver.byName()
	require.Len(t, traces, 3)
	for _, spans := range traces {
		require.Len(t, spans, 3)
		push, commit, deliver := spans["push"], spans["commit"], spans["deliver file"]
		require.NotNil(t, push)
		require.NotNil(t, commit)
		require.NotNil(t, deliver)
		assert.Empty(t, push.GetParentSpanId())
		assert.Positive(t, numberOf(commit, "auditrelay.record"))
		assert.Equal(t, int64(204), numberOf(push, "http.response.status_code"))
		assert.Equal(t, push.GetSpanId(), commit.GetParentSpanId())
		assert.Equal(t, push.GetSpanId(), deliver.GetParentSpanId())
		assert.LessOrEqual(t, push.GetStartTimeUnixNano(), commit.GetStartTimeUnixNano())
		assert.LessOrEqual(t, commit.GetStartTimeUnixNano(), deliver.GetStartTimeUnixNano())
		assert.LessOrEqual(t, deliver.GetStartTimeUnixNano(), deliver.GetEndTimeUnixNano())
	}
	assert.Contains(t, receiver.tokens, "Bearer token")
	assert.NotContains(t, string(receiver.bodies), "a-password-of-some-length")
	assert.NotContains(t, string(receiver.bodies), "LOGIN", "a trace holds no event")
}

func TestABrokenReceiverOfTracesHarmsNothing(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	cfg := testConfig(t.TempDir())
	cfg.Traces.Endpoint, cfg.Traces.Ratio = server.URL+"/v1/traces", 1
	r := start(t, cfg)
	status, text := r.push("one")
	require.Equal(t, http.StatusNoContent, status, text)
	r.arrived("one")
	require.NoError(t, r.stop())
}
