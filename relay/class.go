package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
)

// Class is the kind of a failed delivery, for metrics and for people. It has no influence on
// what happens to the events; for that see [Permanent] and [RetryAfter].
type Class string

// The classes. The list is closed, because they are the values of a metric's label.
const (
	ClassTimeout        Class = "timeout"        // no answer in time
	ClassConnection     Class = "connection"     // no connection: the name, the network, TLS
	ClassAuthentication Class = "authentication" // the credential, or what it is allowed to do
	ClassRefused        Class = "refused"        // the destination does not accept the events, or the request
	ClassThrottled      Class = "throttled"      // the destination asks to wait
	ClassOther          Class = "other"
)

// Classes returns all classes.
func Classes() []Class {
	return []Class{ClassTimeout, ClassConnection, ClassAuthentication, ClassRefused, ClassThrottled, ClassOther}
}

// WithClass marks err with its class. A sink uses it where it knows the class and the type of
// the error does not tell. [ClassOther] and a class outside the list have no effect.
func WithClass(err error, c Class) error { return &marked[Class]{err, c} }

// StatusClass returns the class of an HTTP answer that is not a success.
func StatusClass(status int) Class {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return ClassAuthentication
	case http.StatusTooManyRequests:
		return ClassThrottled
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return ClassTimeout
	}
	if status >= 300 && status < 500 {
		return ClassRefused
	}
	return ClassOther
}

// ClassOf returns the class of a delivery's error: the one given to [WithClass], or else the
// one that follows from its type. Of several failures the first one counts.
func ClassOf(err error) Class {
	if c, ok := markOf[Class](err); ok && c != ClassOther && slices.Contains(Classes(), c) {
		return c
	}
	if _, wait := RetryDelay(err); wait {
		return ClassThrottled
	}
	var network net.Error
	switch {
	case IsPermanent(err):
		return ClassRefused
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return ClassTimeout
	case isConnection(err):
		return ClassConnection
	}
	return ClassOther
}

// isConnection reports whether err is about the connection itself, or its TLS.
func isConnection(err error) bool {
	var (
		operation *net.OpError
		name      *net.DNSError
		peer      *tls.CertificateVerificationError
		alert     tls.AlertError
		header    tls.RecordHeaderError
		authority x509.UnknownAuthorityError
	)
	return errors.As(err, &operation) || errors.As(err, &name) || errors.As(err, &peer) || errors.As(err, &alert) ||
		errors.As(err, &header) || errors.As(err, &authority) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
