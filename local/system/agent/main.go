// Command agent is the only program in the image of the system tests, which run it in pods to see the network and
// the volumes as a pod does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "agent: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return serve(ctx)
	}
	switch verb, rest := args[0], args[1:]; verb {
	case "get":
		return get(ctx, rest[0])
	case "resolve":
		addrs, err := net.DefaultResolver.LookupHost(ctx, rest[0])
		if err != nil {
			return err
		}
		fmt.Println(strings.Join(addrs, " "))
		return nil
	case "wait":
		<-ctx.Done()
		return nil
	case "cat":
		data, err := os.ReadFile(rest[0])
		if err != nil {
			return err
		}
		_, err = os.Stdout.Write(data)
		return err
	case "write":
		return os.WriteFile(rest[0], []byte(rest[1]), 0o644)
	case "put":
		return put(rest[0], rest[1])
	case "head":
		return head(rest[0], rest[1])
	case "size":
		return size(rest[0])
	case "mount":
		return errors.Join(os.MkdirAll(rest[0], 0o755), syscall.Mount("tmpfs", rest[0], "tmpfs", 0, ""))
	default:
		return fmt.Errorf("there is no verb %q", verb)
	}
}

// put writes synchronously to the beginning of a file or device.
func put(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_SYNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func head(path, count string) error {
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(os.Stdout, f, n)
	return err
}

func size(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var st syscall.Statfs_t
	if info, err := f.Stat(); err != nil || !info.IsDir() {
		end, seekErr := f.Seek(0, io.SeekEnd)
		fmt.Println(end)
		return errors.Join(err, seekErr)
	}
	if err := syscall.Fstatfs(int(f.Fd()), &st); err != nil {
		return err
	}
	fmt.Println(int64(st.Blocks) * st.Bsize)
	return nil
}

func serve(ctx context.Context) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, name)
	})}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	fmt.Println("agent serves")
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func get(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}
