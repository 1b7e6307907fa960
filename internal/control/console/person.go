package console

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/auditrelay/auditrelay/internal/workspace"
)

// onURL puts a person into a request's query.
func onURL(p workspace.Person) string {
	return url.Values{"user": {p.User}, "host": {p.Host}}.Encode()
}

type (
	personKey struct{}
	peerKey   struct{}
)

// withPeer keeps in the context of a connection who has opened it.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	var p workspace.Person
	p.User, p.UID = peerOf(c)
	p.Host, _ = os.Hostname() // unknown: the socket is on the relay's host all the same
	return context.WithValue(ctx, peerKey{}, p)
}

// withPerson keeps a request's person in its context: the user at the other end of the
// socket, and what the request claims beyond that.
func withPerson(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := r.Context().Value(peerKey{}).(workspace.Person)
		query := r.URL.Query()
		p.Claimed = claimOf(p, claimed(query.Get("user")), claimed(query.Get("host")))
		p.User, p.Host = cmp.Or(p.User, "unknown"), cmp.Or(p.Host, "unknown")
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), personKey{}, p)))
	})
}

// claimOf is what a request says of its person, empty where that is no news.
func claimOf(known workspace.Person, user, host string) string {
	if user == "" || user == known.User && (host == known.Host || host == "") {
		return ""
	}
	return user + "@" + host
}

// maxClaim bounds each part of a claim, in bytes.
const maxClaim = 128

// claimed is a part of a claim as it is kept.
func claimed(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxClaim)], "")
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
