// Package pull reads the content of a source in a goroutine that reads ahead: it detects a stalled source, resumes
// after a broken connection if the source can, and reports content that has changed or ended early.
//
// It owns the connection and its retries. It must not interpret the content.
package pull
