package console

import (
	"context"
	"net/http"
	"net/url"

	"github.com/auditrelay/auditrelay/internal/workspace"
)

// onURL puts a person into a request's query.
func onURL(p workspace.Person) string {
	return url.Values{"user": {p.User}, "host": {p.Host}}.Encode()
}

type personKey struct{}

// withPerson keeps a request's person in its context.
func withPerson(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		p := workspace.Person{User: query.Get("user"), Host: query.Get("host")}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), personKey{}, p)))
	})
}

func personOf(ctx context.Context) workspace.Person {
	p, _ := ctx.Value(personKey{}).(workspace.Person)
	return p
}

// record enters a loss into the audit trail, with the person who asks for it.
func (s *Server) record(ctx context.Context, loss Loss) error {
	loss.Person = personOf(ctx)
	return s.opts.Record(ctx, loss)
}
