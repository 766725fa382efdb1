// Package web is the source of content on HTTP and HTTPS servers.
//
// It owns the requests and their credentials: credentials and extra headers go to the
// server that the user named and to no other, even if that one redirects. It must know
// nothing about what the content means.
package web
