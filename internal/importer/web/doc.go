// Package web is the source of content on HTTP and HTTPS servers.
//
// It owns what is asked of the server and who it is asked as: credentials and extra
// headers go to the server that the user named and to no other, wherever that one
// redirects to. It must know nothing of what the content means.
package web
