package web

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
)

const exportPath = "/changes/export"

// mostProofs bounds a bundle; more are written by 'auditrelay trail prove'.
const mostProofs = 1000

// exportChanges writes the chosen entries as a file. An error in the middle breaks the download off,
// so that a part is not taken for the whole.
func exportChanges(w http.ResponseWriter, a *asked) error {
	f, err := filterOf(a.request.Form)
	if err != nil {
		return &problem{http.StatusBadRequest, err.Error(), remedies[http.StatusBadRequest]}
	}
	form := a.value("form")
	exports := map[string]struct {
		media, name string
		write       func(io.Writer) error
	}{
		"csv":    {"text/csv; charset=utf-8", "changes.csv", func(w io.Writer) error { return writeEntries(a, w, f, timeline.FormCSV) }},
		"jsonl":  {"application/jsonl", "changes.jsonl", func(w io.Writer) error { return writeEntries(a, w, f, form) }},
		"proofs": {"application/zip", "proofs.zip", func(w io.Writer) error { return writeProofs(a, w, f) }},
	}
	e, known := exports[form]
	if !known {
		return &problem{http.StatusBadRequest, "There is no export of this form.", "Choose CSV, JSON or proofs."}
	}
	if form == "proofs" && a.role < access.Auditor {
		return notAllowed(a.role, access.Auditor)
	}
	out := &download{w: w, media: e.media, name: e.name}
	err = e.write(out)
	if err != nil && out.began {
		a.opts.Logger.Warn("an export in the console broke off", "form", form, "error", err)
		panic(http.ErrAbortHandler)
	}
	return err
}

func writeEntries(a *asked, w io.Writer, f timeline.Filter, form string) error {
	n, err := timeline.Export(a.ctx, w, a.client, f, form)
	if err == nil && n == 0 {
		err = &problem{http.StatusNotFound, "No entry fits, so there is nothing to export.", "Go back, and change the filter."}
	}
	return err
}

// download is the body of an answer that a browser saves.
type download struct {
	w           http.ResponseWriter
	media, name string
	began       bool
}

func (d *download) Write(p []byte) (int, error) {
	if !d.began {
		d.began = true
		d.w.Header().Set("Content-Type", d.media)
		d.w.Header().Set("Content-Disposition", `attachment; filename="`+d.name+`"`)
	}
	return writeWithin(d.w, answerPatience, p)
}

// writeProofs writes for each chosen entry the two files of 'auditrelay trail prove', and one with
// whom to verify them with. Entries that cannot be proven are named in a file.
func writeProofs(a *asked, w io.Writer, f timeline.Filter) error {
	rows, err := provable(a, f)
	if err != nil {
		return err
	}
	prover, trust, err := proverOf(a)
	if err != nil {
		return err
	}
	z := zip.NewWriter(w)
	if err := put(z, "trail.policy", trust.Text); err != nil {
		return err
	}
	var failed []string
	for _, row := range rows {
		made, err := trust.Prove(a.ctx, prover, row.Index)
		if err != nil {
			failed = append(failed, fmt.Sprintf("entry %d: %v\n", row.Index, err))
			continue
		}
		name := strconv.FormatInt(row.Index, 10)
		if made.Record != nil {
			err = put(z, name+".json", made.Record)
		}
		if err := errors.Join(err, put(z, name+proof.Extension, made.Proof.Marshal())); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		if err := put(z, "NOT-PROVEN.txt", []byte(strings.Join(failed, ""))); err != nil {
			return err
		}
	}
	return z.Close()
}

func put(z *zip.Writer, name string, data []byte) error {
	f, err := z.Create(name)
	if err == nil {
		_, err = f.Write(data)
	}
	return err
}

// provable are the entries that a filter chooses, as far as they fit into a bundle.
func provable(a *asked, f timeline.Filter) ([]timeline.Row, error) {
	f.Limit = mostProofs + 1
	list, err := listed(a, f)
	switch {
	case err != nil:
		return nil, err
	case len(list) == 0:
		return nil, &problem{http.StatusNotFound, "No entry fits, so there is nothing to prove.", "Go back, and change the filter."}
	case len(list) > mostProofs:
		return nil, &problem{http.StatusBadRequest, fmt.Sprintf("The filter chooses more than %d entries.", mostProofs), "Choose fewer, or run 'auditrelay trail prove' on the relay's machine."}
	}
	return list, nil
}

func proverOf(a *asked) (*verify.Prover, verify.Trust, error) {
	trail, err := a.opts.Trail()
	if err != nil {
		return nil, verify.Trust{}, err
	}
	fetch, dirs, err := verify.Folder(trail.Dir)
	if err != nil {
		return nil, verify.Trust{}, err
	}
	prover, err := verify.NewProver(a.ctx, fetch, dirs)
	if err != nil {
		return nil, verify.Trust{}, err
	}
	trust, err := verify.OwnTrust(prover, trail.Witnesses, trail.Quorum)
	return prover, trust, err
}

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
		limit(w, answerPatience)
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
