package web

import (
	"context"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"drydock.dev/drydock/internal/virtctl/env"
)

// opener returns the command that opens a file in the user's browser.
func opener(system string, variable func(string) string, find func(string) (string, error)) ([]string, error) {
	switch {
	case system == "darwin":
		return []string{"open"}, nil
	case system == "windows":
		return []string{"rundll32", "url.dll,FileProtocolHandler"}, nil
	case variable("DISPLAY") == "" && variable("WAYLAND_DISPLAY") == "":
		return nil, errors.New("there is no screen here")
	}
	program, err := find("xdg-open")
	if err != nil {
		return nil, fmt.Errorf("xdg-open is missing: %w", err)
	}
	return []string{program}, nil
}

// openBrowser starts the user's browser. All users of this computer see the arguments of programs, so the browser gets a file that
// leads to the address, and that only this user can read. forget removes it.
func openBrowser(ctx context.Context, e *env.Env, address string) (forget func(), err error) {
	forget = func() {}
	command, err := opener(runtime.GOOS, os.Getenv, exec.LookPath)
	if err != nil {
		return forget, err
	}
	folder, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), "virtctl-web-")
	if err != nil {
		return forget, fmt.Errorf("making a folder for the address: %w", err)
	}
	remove := func() {
		if err := os.RemoveAll(folder); err != nil {
			fmt.Fprintf(e.Err, "error: removing the file with the address: %v\n", err)
		}
	}
	file := filepath.Join(folder, "open.html")
	if err := os.WriteFile(file, []byte(leadingTo(address)), 0o600); err != nil {
		return remove, fmt.Errorf("writing the file with the address: %w", err)
	}
	ctx, end := context.WithCancel(ctx)
	browser := exec.CommandContext(ctx, command[0], append(command[1:], file)...)
	if err := browser.Start(); err != nil {
		end()
		return remove, fmt.Errorf("starting %s: %w", command[0], err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = browser.Wait() // the address was printed, too
	}()
	return func() {
		end()
		<-ended
		remove()
	}, nil
}

func leadingTo(address string) string {
	text := html.EscapeString(address)
	return `<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url=` + text + `">` +
		`<title>Web console</title><p><a href="` + text + `">Open the web console</a></p>` + "\n"
}
