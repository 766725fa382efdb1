package agent

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"
)

// OSInfo is guest-get-osinfo's answer.
type OSInfo struct {
	ID            string `json:"id"`
	Name          string `json:"name"`
	PrettyName    string `json:"pretty-name"`
	Version       string `json:"version"`
	VersionID     string `json:"version-id"`
	KernelRelease string `json:"kernel-release"`
	KernelVersion string `json:"kernel-version"`
	Machine       string `json:"machine"`
	Variant       string `json:"variant"`
	VariantID     string `json:"variant-id"`
}

// Info is guest-info's answer.
type Info struct {
	Version  string    `json:"version"`
	Commands []Command `json:"supported_commands"`
}

// Command is one of the agent's commands.
type Command struct {
	Name            string `json:"name"`
	Enabled         bool   `json:"enabled"`
	SuccessResponse bool   `json:"success-response"`
}

// Interface is one of the guest's network interfaces.
type Interface struct {
	Name         string      `json:"name"`
	HardwareAddr string      `json:"hardware-address"`
	Addresses    []IPAddress `json:"ip-addresses"`
}

// IPAddress is an address of an Interface.
type IPAddress struct {
	Type    string `json:"ip-address-type"`
	Address string `json:"ip-address"`
	Prefix  int    `json:"prefix"`
}

// User is a logged-in user.
type User struct {
	Name      string  `json:"user"`
	Domain    string  `json:"domain"`
	LoginTime float64 `json:"login-time"` // seconds since 1970
}

// Filesystem is one of the guest's mounted file systems.
type Filesystem struct {
	Name       string   `json:"name"`
	Mountpoint string   `json:"mountpoint"`
	Type       string   `json:"type"`
	UsedBytes  int64    `json:"used-bytes"`
	TotalBytes int64    `json:"total-bytes"`
	Disks      []FSDisk `json:"disk"`
}

// FSDisk is a disk under a Filesystem.
type FSDisk struct {
	BusType string `json:"bus-type"`
	Serial  string `json:"serial"`
	Device  string `json:"dev"`
}

// Load is the guest's load, the number of processes that run or wait for a disk, on average.
type Load struct {
	Minute         float64 `json:"load1m"`
	FiveMinutes    float64 `json:"load5m"`
	FifteenMinutes float64 `json:"load15m"`
}

// Timezone is the guest's time zone.
type Timezone struct {
	Zone string `json:"zone"`
	// Offset is in seconds east of UTC.
	Offset int `json:"offset"`
}

// Ping returns nil if the agent answers.
func (c *Client) Ping(ctx context.Context) error {
	return c.Execute(ctx, "guest-ping", nil, nil)
}

// Info returns the version and commands.
func (c *Client) Info(ctx context.Context) (Info, error) {
	return query[Info](ctx, c, "guest-info")
}

// OSInfo returns the guest's operating system.
func (c *Client) OSInfo(ctx context.Context) (OSInfo, error) {
	return query[OSInfo](ctx, c, "guest-get-osinfo")
}

// HostName returns the guest's host name.
func (c *Client) HostName(ctx context.Context) (string, error) {
	answer, err := query[struct {
		HostName string `json:"host-name"`
	}](ctx, c, "guest-get-host-name")
	return answer.HostName, err
}

// Interfaces returns the guest's network interfaces.
func (c *Client) Interfaces(ctx context.Context) ([]Interface, error) {
	return query[[]Interface](ctx, c, "guest-network-get-interfaces")
}

// Users returns the logged-in users.
func (c *Client) Users(ctx context.Context) ([]User, error) {
	return query[[]User](ctx, c, "guest-get-users")
}

// Filesystems returns the mounted file systems.
func (c *Client) Filesystems(ctx context.Context) ([]Filesystem, error) {
	return query[[]Filesystem](ctx, c, "guest-get-fsinfo")
}

// Load returns the guest's load. Agents before 10.0 do not support it.
func (c *Client) Load(ctx context.Context) (Load, error) {
	return query[Load](ctx, c, "guest-get-load")
}

// Timezone returns the guest's time zone.
func (c *Client) Timezone(ctx context.Context) (Timezone, error) {
	return query[Timezone](ctx, c, "guest-get-timezone")
}

// VCPU is a CPU of the guest.
type VCPU struct {
	LogicalID int64 `json:"logical-id"`
	Online    bool  `json:"online"`
}

// VCPUs returns the CPUs that the guest's system knows.
func (c *Client) VCPUs(ctx context.Context) ([]VCPU, error) {
	return query[[]VCPU](ctx, c, "guest-get-vcpus")
}

// Frozen is a value of FreezeStatus.
const Frozen = "frozen"

// FreezeStatus returns "thawed" or Frozen.
func (c *Client) FreezeStatus(ctx context.Context) (status string, err error) {
	err = c.executeAtOnce(ctx, "guest-fsfreeze-status", &status)
	return status, err
}

// Freeze flushes and freezes the guest's file systems, and returns their number.
func (c *Client) Freeze(ctx context.Context) (int, error) {
	return query[int](ctx, c, "guest-fsfreeze-freeze")
}

// Thaw undoes Freeze. A silent agent executes it when it continues.
func (c *Client) Thaw(ctx context.Context) error {
	return c.executeAtOnce(ctx, "guest-fsfreeze-thaw", nil)
}

// Shutdown asks the guest to end in one of the agent's modes: powerdown, reboot, halt. nil means only that the agent was
// present and did not refuse at once: it does not answer on success.
func (c *Client) Shutdown(ctx context.Context, mode string) error {
	if err := c.Ping(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	release := c.bound(ctx)
	defer release()
	// The next command must not get a late answer.
	c.synced = false
	line, err := commandLine("guest-shutdown", map[string]any{"mode": mode})
	if err == nil {
		err = c.send(line)
	}
	if err != nil {
		return c.explain(ctx, "guest-shutdown", err)
	}
	return nil
}

// ExecResult is the result of a program in the guest.
type ExecResult struct {
	// ExitCode is -1 after a signal or a Windows exception.
	ExitCode       int
	Stdout, Stderr []byte
}

// The interval of polling a program's status grows from firstPause to lastPause: the agent has no event.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// Exec runs a program in the guest and waits for its end. It dials for each question: QEMU serves one connection to the
// port at a time, and a program may run for long.
func Exec(ctx context.Context, dial func(context.Context) (*Client, error), program string, args []string) (ExecResult, error) {
	var started struct {
		PID int `json:"pid"`
	}
	err := converse(ctx, dial, func(c *Client) error {
		return c.Execute(ctx, "guest-exec", map[string]any{
			"path": program, "arg": append([]string{}, args...), "capture-output": true,
		}, &started)
	})
	if err != nil {
		return ExecResult{}, err
	}
	timer := time.NewTimer(firstPause)
	defer timer.Stop()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ExecResult{}, fmt.Errorf("guest agent: waiting for %s to end: %w", program, ctx.Err())
		}
		var result ExecResult
		var exited bool
		err := converse(ctx, dial, func(c *Client) (err error) {
			result, exited, err = c.execStatus(ctx, started.PID)
			return err
		})
		if err != nil || exited {
			return result, err
		}
	}
}

func converse(ctx context.Context, dial func(context.Context) (*Client, error), talk func(*Client) error) error {
	c, err := dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // all answers have arrived or are given up
	return talk(c)
}

func (c *Client) execStatus(ctx context.Context, pid int) (result ExecResult, exited bool, err error) {
	var s struct {
		Exited   bool   `json:"exited"`
		ExitCode *int   `json:"exitcode"`
		OutData  string `json:"out-data"`
		ErrData  string `json:"err-data"`
	}
	if err := c.Execute(ctx, "guest-exec-status", map[string]any{"pid": pid}, &s); err != nil {
		return ExecResult{}, false, err
	}
	result.ExitCode = -1
	if s.ExitCode != nil {
		result.ExitCode = *s.ExitCode
	}
	if result.Stdout, err = base64.StdEncoding.DecodeString(s.OutData); err != nil {
		return ExecResult{}, false, fmt.Errorf("guest agent: decoding the program's output: %w", err)
	}
	if result.Stderr, err = base64.StdEncoding.DecodeString(s.ErrData); err != nil {
		return ExecResult{}, false, fmt.Errorf("guest agent: decoding the program's error output: %w", err)
	}
	return result, s.Exited, nil
}

func query[T any](ctx context.Context, c *Client, command string) (T, error) {
	var answer T
	err := c.Execute(ctx, command, nil, &answer)
	return answer, err
}

// SetAuthorizedKeys replaces a user's SSH public keys.
func (c *Client) SetAuthorizedKeys(ctx context.Context, user string, keys []string) error {
	return c.Execute(ctx, "guest-ssh-add-authorized-keys", map[string]any{
		"username": user, "keys": append([]string{}, keys...), "reset": true,
	}, nil)
}

// SetPassword sets the password of user.
func (c *Client) SetPassword(ctx context.Context, user, password string) error {
	return c.Execute(ctx, "guest-set-user-password", map[string]any{
		"username": user, "password": base64.StdEncoding.EncodeToString([]byte(password)), "crypted": false,
	}, nil)
}
