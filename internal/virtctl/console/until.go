package console

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"regexp"
)

// watch prints what the guest says up to the first whole line that matches. It
// sends nothing, so it can run beside a console that somebody types in.
func watch(ctx context.Context, out io.Writer, conn net.Conn, until *regexp.Regexp) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var line bytes.Buffer
	chunk := make([]byte, 4096)
	for {
		n, err := conn.Read(chunk)
		for _, b := range chunk[:n] {
			line.WriteByte(b)
			if b != '\n' {
				continue
			}
			found := until.Match(bytes.TrimRight(line.Bytes(), "\r\n"))
			if _, err := out.Write(line.Bytes()); err != nil {
				return fmt.Errorf("printing what the guest says: %w", err)
			}
			if found {
				return nil
			}
			line.Reset()
		}
		if err != nil {
			_, _ = out.Write(line.Bytes()) // the error is worth more than its failure
			return fmt.Errorf("no line matched %q before the console ended: %w", until, cause(ctx, err))
		}
	}
}

// cause is why a read failed: the context's end closes the connection, and that
// is the better reason.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
