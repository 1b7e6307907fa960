package web

import (
	"net/http"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Trail is what browsers prove the audit trail with.
type Trail struct {
	// Files serves the trail's files below tiles.Prefix.
	Files http.Handler
	// Policy names the trail's newest key and its witnesses (C2SP tlog-policy). A browser that
	// trusts nobody yet begins with them.
	Policy func() (string, error)
	// Dir is the folder of the files. Witnesses and Quorum are those that the proofs of an export are
	// to be verified with.
	Dir       string
	Witnesses []proof.Witness
	Quorum    int
}

// proveOf is the page on which the browser checks an entry. The server says nothing about it.
func proveOf(a *asked) (any, error) { return struct{ Entry string }{a.value("entry")}, nil }

// trailFiles gives what the scripts of the page ask for.
func trailFiles(w http.ResponseWriter, a *asked) error {
	trail, err := a.opts.Trail()
	if err == nil {
		trail.Files.ServeHTTP(w, a.request)
	}
	return err
}

func trailPolicy(w http.ResponseWriter, a *asked) error {
	trail, err := a.opts.Trail()
	if err != nil {
		return err
	}
	text, err := trail.Policy()
	if err == nil {
		write(w, http.StatusOK, "text/plain; charset=utf-8", []byte(text))
	}
	return err
}
