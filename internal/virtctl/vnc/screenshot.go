package vnc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/png"
	"os"
	"time"

	"github.com/spf13/cobra"

	"drydock.dev/drydock/internal/rfb"
	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

// screenshotTimeout is for the whole picture: megabytes of raw pixels, at worst over a slow connection.
const screenshotTimeout = time.Minute

type screenshotOptions struct {
	name       string
	file       string
	moveCursor bool
}

func newScreenshot(e *env.Env) *cobra.Command {
	var o screenshotOptions
	cmd := &cobra.Command{
		Use:   "screenshot VMI",
		Short: "Save the screen of a virtual machine instance as a PNG picture",
		Example: e.Example("# Save the screen of 'vm-cirros':", "vnc screenshot vm-cirros --file=screen.png",
			"# Write the picture to standard output:", "vnc screenshot vm-cirros > screen.png"),
		Args: env.ExactArgs("VMI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			return screenshot(cmd.Context(), e, o)
		},
	}
	cmd.Flags().StringVarP(&o.file, "file", "f", "-", "where to write the picture; - is standard output")
	cmd.Flags().BoolVar(&o.moveCursor, "move-cursor", false, "move the mouse first, to wake a screen saver")
	return cmd
}

func screenshot(ctx context.Context, e *env.Env, o screenshotOptions) error {
	if _, isTerminal := e.OutTerminal(); isTerminal && o.file == "-" {
		return fmt.Errorf("saving the screen: the output is a terminal: name a file with --file or redirect the output")
	}
	c, namespace, err := e.Connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, screenshotTimeout, errors.New("the screen did not come in time"))
	defer cancel()
	p := &proxy{client: c, ref: client.Ref{Resource: client.VirtualMachineInstances, Namespace: namespace, Name: o.name}}
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	picture, err := rfb.Picture(conn, rfb.Options{MoveCursor: o.moveCursor})
	_ = conn.Close()
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("taking a picture of the screen of VMI %s: %w", o.name, err)
	}
	var encoded bytes.Buffer
	if err := png.Encode(&encoded, picture); err != nil {
		return fmt.Errorf("encoding the picture: %w", err)
	}
	if o.file == "-" {
		_, err := e.Out.Write(encoded.Bytes())
		return err
	}
	if err := os.WriteFile(o.file, encoded.Bytes(), 0o644); err != nil {
		return fmt.Errorf("saving the picture: %w", err)
	}
	return nil
}
