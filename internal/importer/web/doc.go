// Package web is the source of content on HTTP and HTTPS servers.
//
// It owns the requests and their credentials, which are sent to the server that the user named and to no other,
// even after a redirect. It must not interpret the content.
package web
