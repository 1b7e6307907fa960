package config

import (
	"net/url"
	"strings"
)

// address describes a kind of URL in the configuration. Its texts end the errors.
type address struct {
	form  string // such as "an address such as https://loki.example.com, without ? and #"
	login string // where to put a user and password instead
	https string // why it has to be https

	query, path bool // whether it may have a query, and whether it needs a path
	secret      bool // whether it is never shown

	bare string // why it must have no path; empty if it may have one
}

// url checks a URL, unless it is empty.
func (k *checker) url(path, value string, a address) {
	shown := any(value)
	if a.secret {
		shown = nil
	}
	u, err := url.Parse(value)
	switch {
	case value == "":
	case err == nil && u.User != nil, err != nil && strings.Contains(value, "@"):
		k.fail(path, nil, "must hold no user and password"+a.login)
	case err != nil || !a.fits(u):
		k.fail(path, shown, "must be "+a.form)
	case u.Scheme == "http" && !IsLoopback(u.Hostname()):
		k.fail(path, shown, "must be https"+a.https+"; http is for loopback only")
	case a.bare != "" && u.Path != "" && u.Path != "/":
		k.fail(path, shown, "must have no path: "+a.bare)
	}
}

func (a address) fits(u *url.URL) bool {
	return (u.Scheme == "https" || u.Scheme == "http") && isHost(u.Hostname()) && u.Fragment == "" &&
		(a.query || u.RawQuery == "") && (!a.path || strings.Trim(u.Path, "/") != "")
}
