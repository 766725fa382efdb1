// Package pull reads a source's content ahead in a goroutine: it detects a stalled source, resumes after a broken
// connection if the source can, and reports content that has changed or ended early.
//
// It owns the connection and its retries. It must not interpret the content.
package pull
