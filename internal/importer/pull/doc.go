// Package pull reads the content of a source from its beginning to its end, with
// its own goroutine ahead of the reader: it notices a source that stalls, goes on
// after a cut connection where the source can, and says when content changed
// meanwhile or ended early.
//
// It owns the connection and its retries. It must know nothing about what the
// content means.
package pull
