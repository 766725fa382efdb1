package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Up starts the cluster of DRYDOCK_NAME and DRYDOCK_DIR with Drydock. It can be repeated. The caller must stop
// the cluster even if Up fails.
func Up(ctx context.Context, programs string) error {
	images, err := filepath.Glob(filepath.Join("build", "images", "*.tar"))
	if err != nil {
		return fmt.Errorf("looking for container images in build/images: %w", err)
	}
	if len(images) == 0 {
		return errors.New("there is no container image in build/images: run make images")
	}
	drydock := filepath.Join(programs, "drydock")
	for _, step := range [][]string{
		{drydock, "up", "--nodes", "2"},
		append([]string{drydock, "image", "load"}, images...),
		{drydock, "deploy", "config", filepath.Join("config", "kubevirt", "emulated.yaml")},
		// All figures are for one replica: a second one costs only its idle memory.
		{drydock, "kubectl", "-n", Namespace, "scale", "--replicas=1", "deployment/virt-api", "deployment/virt-controller"},
	} {
		if err := tell(ctx, step); err != nil {
			return fmt.Errorf("starting the cluster: %w", err)
		}
	}
	return nil
}

// Down stops the cluster and removes its data.
func Down(ctx context.Context, programs string) error {
	if err := tell(ctx, []string{filepath.Join(programs, "drydock"), "down", "--purge"}); err != nil {
		return fmt.Errorf("taking the cluster down: %w", err)
	}
	return nil
}

// Only this process gets the terminal's interrupt, so that a Ctrl-C does not interrupt the shutdown of the
// cluster.
func tell(ctx context.Context, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %v: %w", command[:min(3, len(command))], err)
	}
	return nil
}
