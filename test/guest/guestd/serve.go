package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// serve brings the guest up and stays until it goes down:
//
//	mounts -> drivers -> cloud-init's data -> name, keys, files -> network
//	       -> services -> "ready" -> logins, user's script
//
// From then on it handles hotplugged devices. It prints
// failures on the console and goes on: a test also wants to
// look into a guest that is half broken.
func serve(ctx context.Context, _ []string) error {
	// The kernel gives its first process no useful search path.
	if err := os.Setenv("PATH", "/sbin:/usr/sbin:/bin:/usr/bin"); err != nil {
		return fmt.Errorf("setting the search path: %w", err)
	}
	report("mounting", mountAll())
	report("silencing the kernel", quietKernel())
	devices, err := listenKernel(unix.NETLINK_KOBJECT_UEVENT, 1)
	if err != nil {
		return err
	}
	drivers, err := newDrivers()
	if err != nil {
		return err
	}
	report("having plugged memory used", usePluggedMemory())
	report("loading drivers", drivers.coldplug())

	seed, err := findSeed()
	report("reading cloud-init's data", err)
	report("greeting as another distribution", seed.become())
	report("applying cloud-init's data", seed.apply())

	network := newNetwork(seed.networks)
	report("bringing up the network", network.start(ctx))
	hotplug := hotplug{drivers: drivers, network: network, agents: newAgents()}
	startServices(ctx)
	hotplug.agents.scan(ctx)
	go func() {
		network.wait(ctx)
		announce()
		startLogins(ctx)
		report("running the user's script", seed.runOnce(ctx))
	}()
	messages(ctx, devices, func(message []byte) { hotplug.handle(ctx, parseUevent(message)) })
	return ctx.Err()
}

func report(what string, err error) {
	if err != nil {
		say("%s: %v", what, err)
	}
}

// say prints a line on all consoles. It begins on a new line, because a user may be typing.
func say(format string, args ...any) {
	printLine("guest: " + fmt.Sprintf(format, args...))
}

func printLine(line string) {
	for _, name := range consoles() {
		if console, err := os.OpenFile(name, os.O_WRONLY|unix.O_NOCTTY, 0); err == nil {
			_, _ = fmt.Fprintf(console, "\r%s\r\n", line)
			_ = console.Close()
		}
	}
}

// consoles lists the guest's terminals.
func consoles() []string {
	var present []string
	for _, name := range []string{"tty1", "ttyS0", "hvc0"} {
		// The kernel makes nodes for four serial ports; only a real one has a type.
		if kind, err := os.ReadFile("/sys/class/tty/" + name + "/type"); err == nil && strings.TrimSpace(string(kind)) == "0" {
			continue
		}
		if _, err := os.Stat("/dev/" + name); err == nil {
			present = append(present, "/dev/"+name)
		}
	}
	return present
}

// announce prints the line that tests wait for.
func announce() {
	name, err := os.Hostname()
	report("asking for the name", err)
	if err := os.WriteFile("/srv/www/index.html", []byte(name+"\n"), 0o644); err != nil {
		say("writing the web page: %v", err)
	}
	printLine(fmt.Sprintf("drydock guest ready: %s uuid=%s", name, systemUUID()))
}

func startLogins(ctx context.Context) {
	for _, console := range consoles() {
		go supervise(ctx, "/sbin/getty", "-L", "115200", filepath.Base(console), "vt100")
	}
}

func startServices(ctx context.Context) {
	go func() { report("serving echo", serveEcho(ctx)) }()
	go func() { report("having a pulse", servePulse(ctx)) }()
	go supervise(ctx, "/sbin/acpid")
	go supervise(ctx, "/usr/sbin/httpd", "-f", "-p", "80", "-h", "/srv/www")
	// -R makes host keys at the first connection, -E logs to standard error.
	go supervise(ctx, "/usr/sbin/dropbear", "-F", "-R", "-E")
}

type hotplug struct {
	drivers *drivers
	network *network
	agents  *agents
}

func (h hotplug) handle(ctx context.Context, event uevent) {
	switch {
	case event.action == "add" && event.modalias != "":
		_, err := h.drivers.serve(event.modalias)
		report("loading a driver", err)
	case event.action == "add" && event.subsystem == "net":
		h.network.add(ctx, event.iface)
	case event.action == "remove" && event.subsystem == "net":
		h.network.remove(event.iface)
	case event.subsystem == "virtio-ports" && (event.action == "add" || event.action == "change"):
		// A port gets its name after its creation, by this event.
		h.agents.add(ctx, filepath.Base(event.devpath))
	case event.subsystem == "virtio-ports" && event.action == "remove":
		h.agents.remove(filepath.Base(event.devpath))
	}
}

func openLog(program string) (*os.File, error) {
	name := "/var/log/" + filepath.Base(program) + ".log"
	return os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("running %s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
