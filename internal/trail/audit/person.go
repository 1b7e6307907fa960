package audit

import (
	"strconv"
	"strings"
	"unicode"
)

// Person is somebody who asks for an action.
type Person struct {
	// User is the owner of the process that asked, as the kernel told the relay: the name of
	// UID, or "unknown" where a kernel tells nothing. Host is the relay's own, as the process
	// ran on it.
	User string  `json:"user"`
	Host string  `json:"host"`
	UID  *uint32 `json:"uid,omitempty"`
	// Claimed is who the process says it acts for, as USER@HOST: before sudo, for example.
	// Nobody has checked it. It is empty where it says what is known.
	Claimed string `json:"claimed,omitempty"`
	// By is how the relay knows a person at a browser: [ByLink], [ByOIDC] or [ByCertificate]. It
	// is empty for a process.
	By string `json:"by,omitempty"`
	// Subject is what the provider calls the person by, and never another one: the sub of OIDC, or
	// the serial number of a certificate.
	Subject string `json:"subject,omitempty"`
}

// How the relay knows a person at a browser.
const (
	// ByLink: a link was opened that the process of User had asked for on the machine Host.
	ByLink = "link"
	// ByOIDC: User is a claim of the provider at Host.
	ByOIDC = "oidc"
	// ByCertificate: User is the name in a certificate that the authority Host has signed.
	ByCertificate = "certificate"
)

// String is USER@HOST, with how a person at a browser is known, and with a claim marked as such.
// An e-mail address stands for both.
func (p Person) String() string {
	text := p.User + "@" + p.Host
	if p.By != "" {
		if text = ending(p.User + "@" + p.Host); strings.Contains(p.User, "@") {
			text = ending(p.User)
		}
		text += " (by " + p.By + ")"
	}
	if p.Claimed != "" {
		text += " (claims " + ending(p.Claimed) + ")"
	}
	return text
}

// ending quotes a name that may hold anything, so that it ends where it ends.
func ending(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("@._-+:", r)
	}) {
		return strconv.Quote(name)
	}
	return name
}
