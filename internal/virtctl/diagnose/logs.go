package diagnose

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/version"
	"drydock.dev/drydock/internal/virtctl/client"
)

// Bounds of logs, pods and guests, in bytes and in numbers.
const (
	maxLog        = 4 << 20 // of one container; only its end is read
	maxPods       = 100     // of guests, whose logs are read
	maxComponents = 200     // pods of the installation, whose logs are read
	maxGuests     = 20      // whose agents are asked
)

// log returns the allowed part of a log.
func (c *collector) log(p *loggedPod, text string) string {
	if p.isGuests {
		return c.rules.TextOf(p.pod.GetNamespace(), text)
	}
	return c.rules.Log(text, func(namespace, name string) bool {
		return c.scope.vm != "" && name != "" && (namespace != c.only || name != c.scope.vm)
	})
}

func (c *collector) readLog(ctx context.Context, p loggedPod, container string, previous bool) error {
	text, err := c.c.Log(ctx, p.pod, container, previous, maxLog)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case apierrors.IsForbidden(err):
		c.miss("you may not read the logs of pods%s", of(p.pod.GetNamespace()))
		return nil
	case apierrors.IsNotFound(err), previous:
		return nil // it has gone meanwhile
	default:
		c.miss("the log of pod %s/%s: %v", p.pod.GetNamespace(), p.pod.GetName(), err)
		return nil
	}
	file := "current.log"
	if previous {
		file = "previous.log"
	}
	c.logs++
	if err := c.out.Add([]byte(c.log(&p, string(text))), "namespaces", p.pod.GetNamespace(), "pods", p.pod.GetName(), container, container, "logs", file); err != nil {
		return &writeError{err}
	}
	return nil
}

// maxPrinted bounds virt-launcher's output, in bytes.
const maxPrinted = 1 << 20

// printed is the output of a verb of virt-launcher about the QEMU of its pod. An older virt-launcher does not have the verb.
type printed struct {
	what, verb, file string
	// allowed returns the part that may leave the cluster.
	allowed func(c *collector, text []byte) ([]byte, error)
}

var ofQEMU = []printed{
	{"arguments", layout.ArgumentsVerb, "qemu-arguments.txt", (*collector).arguments},
	{"state", layout.StateVerb, "qemu-state.yaml", (*collector).state},
}

// readQEMU reads the arguments and the state of QEMU in the pods of the one machine.
func (c *collector) readQEMU(ctx context.Context) error {
	for _, p := range c.guests {
		if c.scope.vm == "" || c.rules.Withholds(p.pod.GetNamespace()) || !slices.Contains(p.containers, layout.ComputeContainer) {
			continue
		}
		for _, one := range ofQEMU {
			if err := c.readPrinted(ctx, p.pod.GetNamespace(), p.pod.GetName(), one); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *collector) readPrinted(ctx context.Context, namespace, pod string, one printed) error {
	limited, stop := context.WithTimeout(ctx, patience)
	defer stop()
	text, err := c.c.Output(limited, namespace, pod, layout.ComputeContainer, maxPrinted, layout.LauncherBinary, one.verb)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case apierrors.IsForbidden(err):
		c.miss("you may not execute a command in pods%s, which would print QEMU's %s", of(namespace), one.what)
		return nil
	case err == nil:
		text, err = one.allowed(c, text)
	}
	if err != nil {
		c.miss("the %s of QEMU in pod %s/%s: %v", one.what, namespace, pod, err)
		return nil
	}
	if err := c.out.Add(text, "namespaces", namespace, "pods", pod, layout.ComputeContainer, one.file); err != nil {
		return &writeError{err}
	}
	return nil
}

func (c *collector) arguments(text []byte) ([]byte, error) {
	args, err := arguments(text)
	return []byte(strings.Join(c.rules.Arguments(args), "\n") + "\n"), err
}

// state leaves out whatever else a QEMU or a pod that somebody has taken over may print.
func (c *collector) state(text []byte) ([]byte, error) {
	var report map[string]any
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("reading the report: %w", err)
	}
	return yaml.Marshal(c.rules.Object("state.diagnose.drydock.dev", report))
}

func arguments(text []byte) ([]string, error) {
	var args []string
	for line := range bytes.Lines(text) {
		var arg string
		if err := json.Unmarshal(line, &arg); err != nil {
			return nil, fmt.Errorf("reading a line: %w", err)
		}
		args = append(args, arg)
	}
	return args, nil
}

// guest is a VMI whose agent can be asked.
type guest struct{ namespace, name string }

func (c *collector) noteGuest(o object) {
	if o.Text("status", "phase") != "Running" || c.scope.vm == "" && len(c.machines) >= maxGuests {
		return
	}
	for _, condition := range o.List("status", "conditions") {
		if condition["type"] == "AgentConnected" && condition["status"] == "True" {
			c.machines = append(c.machines, guest{o.GetNamespace(), o.GetName()})
		}
	}
}

// answered are the subresources that are read. The users of a guest are not the cluster's business.
var answered = []string{"guestosinfo", "filesystemlist"}

func (c *collector) askGuests(ctx context.Context) error {
	for _, g := range c.machines {
		for _, verb := range answered {
			limited, stop := context.WithTimeout(ctx, patience)
			body, err := c.c.Get(limited, client.Ref{Resource: client.VirtualMachineInstances, Namespace: g.namespace, Name: g.name}, verb)
			stop()
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case apierrors.IsForbidden(err):
				c.miss("you may not read the %s of guests%s", verb, of(g.namespace))
				continue
			case err != nil:
				c.miss("the %s of VMI %s/%s: %v", verb, g.namespace, g.name, err)
				continue
			}
			if err := c.putAnswer(verb, body, "namespaces", g.namespace, "subresources.kubevirt.io", "virtualmachineinstances", g.name, verb+".yaml"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *collector) putAnswer(verb string, body []byte, elements ...string) error {
	var answer map[string]any
	if err := json.Unmarshal(body, &answer); err != nil {
		c.miss("the answer %s can't be read: %v", verb, err)
		return nil
	}
	text, err := yaml.Marshal(c.rules.Object(verb+".subresources.kubevirt.io", answer))
	if err == nil {
		err = c.out.Add(text, elements...)
	}
	if err != nil {
		return &writeError{err}
	}
	return nil
}

// versions writes the versions of both sides.
func (c *collector) versions(ctx context.Context) error {
	limited, stop := context.WithTimeout(ctx, patience)
	defer stop()
	body, err := c.c.ServerVersion(limited)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		c.miss("the version of virt-api: %v", err)
	default:
		if err := c.putAnswer("version", body, "version-of-virt-api.yaml"); err != nil {
			return err
		}
	}
	if err := c.out.Add(fmt.Appendf(nil, "virtctl %s\n", version.Get().GitVersion), "version"); err != nil {
		return &writeError{err}
	}
	return nil
}
