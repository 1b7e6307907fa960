// Package realservers starts destinations, and reads them back: a real Loki, as a process
// to kill and start again, and strict fakes of Datadog's intake and of a webhook's
// receiver. All of them listen on loopback, and end with this process.
package realservers
