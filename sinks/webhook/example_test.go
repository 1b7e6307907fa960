package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks/webhook"
)

// A receiver checks the signature of the bytes as they came, and answers 2xx once it has stored
// them safely.
func ExampleVerify() {
	key := secret.New("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw") // rather from the environment
	receive := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<20))
		if err != nil {
			http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
			return
		}
		if err := webhook.Verify(r.Header, body, key, 5*time.Minute, time.Now()); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		fmt.Println(r.Header.Get("webhook-id"))
		fmt.Println(string(body))
		w.WriteHeader(http.StatusNoContent)
	}
	server := httptest.NewServer(http.HandlerFunc(receive))
	defer server.Close()

	sink, err := webhook.New(config.Webhook{URL: secret.New(server.URL + "/hook"), Secret: key}, webhook.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 11, 3, 8, 30, 0, 0, time.UTC)
	fmt.Println(sink.Deliver(context.Background(), []relay.Event{{
		ID: "event-1", Source: "/projects/shop/environments/live", Type: "event_log.users.create",
		Time: at, Received: at, ContentType: "application/json", Body: []byte(`{"user":"zoë"}`),
	}}), sink.Close())
	// Output:
	// batch_jsqIlndQGcmsRy_tJXfgVJ3iZMqjkJXmjoHMd8Y7wOM
	// [{"specversion":"1.0","id":"event-1","source":"/projects/shop/environments/live","type":"event_log.users.create","time":"2026-11-03T08:30:00Z","receivedtime":"2026-11-03T08:30:00Z","datacontenttype":"application/json","data":{"user":"zoë"}}]
	// <nil> <nil>
}
