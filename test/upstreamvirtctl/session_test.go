package upstreamvirtctl

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

type step struct {
	line string
	// says is a regular expression for the line's whole output, answers one for its standard output.
	says, answers string
	fails         bool
	// awaited lines are repeated until they give the expected result, which the later lines need.
	awaited bool
	// The line does not end by itself.
	with func(t *testing.T, p *program)
}

const (
	anew = "virtctl ssh $SSH root@vm/vm-cirros --command='test ! -e /tmp/before && touch /tmp/before && echo booted anew'"
	// The image has drivers for SATA, because `create vm` sets no bus for its disks. Its guest needs 160 MiB.
	createVM = "virtctl create vm --name=vm-cirros --instancetype=virtualmachineinstancetype/small --preference=virtualmachinepreference/plain" +
		" --volume-containerdisk=src:drydock.dev/test-guest-full:devel --user=guest --ssh-key=\"$(cat key.pub)\"" +
		" --access-cred=type:ssh,src:keys,user:root --access-cred=type:password,src:passwords"
)

// session has each verb, in an order in which the guest boots five times.
var session = []step{
	{line: "ssh-keygen -q -t ed25519 -N '' -C first -f key && ssh-keygen -q -t ed25519 -N '' -C second -f other"},
	{line: "kubectl create -f $TESTDATA/objects.yaml && kubectl create secret generic keys --from-file=key.pub"},
	{line: "virtctl version", says: `Client Version: version\.Info\{GitVersion:"v1\.[^\n]*\nServer Version: version\.Info\{GitVersion:"v`},

	{line: "virtctl create instancetype --namespaced --name=small --cpu=1 --memory=192Mi | kubectl create -f -", says: "small created"},
	{line: "virtctl create preference --namespaced --name=plain --cpu-topology=sockets | kubectl create -f -", says: "plain created"},
	{line: "virtctl create instancetype --cpu=1 --memory=192Mi | kubectl create --dry-run=server -f -", says: `created \(server dry run\)`},
	{line: "virtctl create preference | kubectl create --dry-run=server -f -", says: `created \(server dry run\)`},
	{line: "virtctl create vm | kubectl create --dry-run=server -f -", says: `created \(server dry run\)`},
	{line: createVM + " | kubectl create --dry-run=server -f -", says: `created \(server dry run\)`},
	{line: createVM + " | kubectl create -f -", says: "vm-cirros created"},
	{line: "virtctl create clone --source-name=vm-cirros | kubectl create --dry-run=server -f -", says: `created \(server dry run\)`},
	{line: "virtctl expand --vm=vm-cirros", says: "guest: 192Mi"}, // from the instance type

	{line: "head -c 1M /dev/zero >disk.img"},
	{line: "virtctl image-upload dv uploaded --size=16Mi --image-path=disk.img --force-bind --insecure --uploadproxy-url=$UPLOADPROXY",
		says: "Uploading disk.img completed successfully"},

	{line: "kubectl wait vm/vm-cirros --for=condition=AgentConnected --timeout=5m", awaited: true},
	{line: anew, says: "booted anew", awaited: true},
	{line: "virtctl guestosinfo vm-cirros", says: `"guestAgentVersion": "\d`},
	// Disks on SATA may appear in any order, and late; one has a partition.
	{line: "virtctl ssh $SSH root@vm/vm-cirros --command='mount -t vfat -o ro /dev/sd?1 /mnt'", awaited: true},
	{line: "virtctl fslist vm-cirros", says: `"mountPoint": "/mnt"`},
	{line: "virtctl userlist vm-cirros", says: `"items": \[`},
	{line: "virtctl pause vm vm-cirros", says: "VMI vm-cirros was scheduled to pause"},
	{line: "virtctl pause vm vm-cirros", fails: true, says: "VMI is already paused", awaited: true},
	{line: "virtctl unpause vm vm-cirros", says: "VMI vm-cirros was scheduled to unpause"},

	{line: "virtctl vnc screenshot vm-cirros --file=screen.png && head -c 4 screen.png", says: "PNG"},
	{line: "virtctl vnc vm-cirros --proxy-only", with: greets(`"port":(\d+)`, "RFB 003.")},
	// Ctrl-] works only if nothing was typed just before: the guest must have answered the earlier input.
	{line: "virtctl console vm-cirros", with: talks("Successfully connected to vm-cirros console", "guest\r", "Password: ", "\x1d")},
	{line: "virtctl scp $SSH key.pub guest@vm/vm-cirros:copied"},
	{line: "virtctl ssh $SSH guest@vmi/vm-cirros --command='id -un && cat copied'", says: "guest\nssh-ed25519 "},
	{line: "virtctl port-forward vm/vm-cirros $PORT:22", with: greets(`127\.0\.0\.1:(\d+) to 22`, "SSH-2.0-")},
	{line: "virtctl expose vm vm-cirros --name=ssh --port=22", says: "Service ssh successfully created for vm vm-cirros"},
	{line: "kubectl get endpointslices -l kubernetes.io/service-name=ssh -o jsonpath='{.items[*].endpoints[*].addresses}'", says: `\d`, awaited: true},
	{line: "kubectl get pods -o name", answers: `^pod/virt-launcher-\S+\n$`, awaited: true}, // the upload's pod is gone
	{line: "virtctl guestfs uploaded --kvm=false", with: talks("press(ing)? enter", "guestfish --ro -a disk.img run : list-devices\r", "/dev/sda", "exit\r")},

	{line: "virtctl addvolume vm-cirros --volume-name=data", says: "Successfully submitted add volume request to VM vm-cirros for volume data"},
	{line: "virtctl ssh $SSH root@vm/vm-cirros --command='cat /proc/partitions'", says: "16384 sdc", awaited: true},
	{line: "virtctl removevolume vm-cirros --volume-name=data", says: "Successfully submitted remove volume request to VM vm-cirros for volume data"},
	{line: "kubectl get vmi vm-cirros -o jsonpath='{.status.volumeStatus[*].name}'", answers: "^cloudinitdisk vm-cirros-containerdisk-0$", awaited: true},

	{line: "virtctl credentials add-ssh-key --user=root --file=other.pub vm-cirros", fails: true,
		says: "secret keys does not have an owner reference pointing to VM vm-cirros"},
	{line: "virtctl credentials add-ssh-key --user=root --file=other.pub --force vm-cirros", says: `Successfully added the key to secret "keys"`},
	{line: "virtctl ssh $SSH root@vm/vm-cirros --command='cat .ssh/authorized_keys'", says: " second", awaited: true},
	// With --file it also looks for the line's end, which it removed when it added the key: nothing is removed.
	{line: `virtctl credentials remove-ssh-key --user=root --value="$(cat other.pub)" --force vm-cirros`},
	{line: "virtctl ssh $SSH root@vm/vm-cirros --command='! grep second .ssh/authorized_keys'", awaited: true},
	{line: "virtctl credentials set-password --user=guest --password=new --force vm-cirros", says: `Successfully set password in secret "passwords"`},
	{line: "kubectl get secret passwords -o jsonpath='{.data.guest}'", answers: "^bmV3$"},

	{line: "virtctl migrate vm-cirros --addedNodeSelector=kubernetes.io/hostname=nowhere", says: "VM vm-cirros was scheduled to migrate"},
	{line: "virtctl migrate vm-cirros", fails: true, says: "VMI vm-cirros is being migrated already"},
	{line: "virtctl migrate-cancel vm-cirros", says: "VM vm-cirros was scheduled to migrate-cancel"},
	{line: "virtctl migrate-cancel vm-cirros", fails: true, says: "Found no migration to cancel for vm-cirros", awaited: true},
	{line: "virtctl migrate vm-cirros", says: "VM vm-cirros was scheduled to migrate"},
	{line: "kubectl wait vmim --all --for=jsonpath='{.status.phase}'=Succeeded --timeout=5m"},
	{line: "virtctl evacuate-cancel vm vm-cirros", fails: true, says: "VMI is not marked for evacuation"},

	{line: "virtctl memory-dump get vm-cirros --claim-name=dump --create-claim", says: "Successfully submitted memory dump request of VM vm-cirros"},
	{line: "kubectl get vm vm-cirros -o jsonpath='{.status.memoryDumpRequest.phase}'", answers: "^Completed$", awaited: true},
	{line: "virtctl memory-dump remove vm-cirros", says: "Successfully submitted remove memory dump association of VM vm-cirros"},
	{line: "kubectl get vm vm-cirros -o jsonpath='{.status.memoryDumpRequest}'", answers: "^$", awaited: true},
	{line: "virtctl memory-dump remove vm-cirros", fails: true, says: "the VM vm-cirros has no memory dump to remove"},
	{line: "virtctl objectgraph vm-cirros", fails: true, says: "not supported by Drydock: 'kubectl get vm,vmi,pods,datavolumes,pvc' lists"},
	{line: "virtctl objectgraph --vmi vm-cirros", fails: true, says: "not supported by Drydock: 'kubectl get vm,vmi,pods,datavolumes,pvc' lists"},
	{line: "virtctl usbredir 0951:1666 vm-cirros", fails: true, says: "not supported by Drydock: give the device to the guest over the network, with usbip"},
	{line: "virtctl vmexport create copy --vm=vm-cirros", fails: true, says: noExport},
	{line: "virtctl vmexport delete copy", fails: true, says: noExport},
	{line: "virtctl vmexport download copy --vm=vm-cirros --output=copy.img", fails: true, says: noExport},
	{line: "virtctl vmexport download copy --output=copy.img", fails: true, says: noExport},
	{line: "virtctl template create --vm-name=vm-cirros", fails: true, says: "VirtualMachineTemplateRequest: " + noTemplate},
	{line: "virtctl template process variant", fails: true, says: "VirtualMachineTemplate: " + noTemplate},
	{line: "virtctl template process variant --local", fails: true, says: "VirtualMachineTemplate: " + noTemplate},
	// OpenShift's template is none of KubeVirt's kinds.
	{line: "virtctl template convert variant", fails: true,
		says: `(?m)(^|: )the server could not find the requested resource \(get templates\.template\.openshift\.io variant\)$`},

	{line: "virtctl adm log-verbosity --virt-handler=3", says: "successfully set/reset the log verbosity"},
	{line: "virtctl adm log-verbosity --virt-handler", says: "virt-handler=3"},
	{line: "virtctl adm log-verbosity --reset", says: "successfully set/reset the log verbosity"},
	{line: "virtctl adm log-verbosity --all", says: "(?s)virt-api=2.*virt-handler=2"},
	{line: "virtctl permitted-devices -n kubevirt", says: "Permitted Devices:"},

	{line: "virtctl soft-reboot vm-cirros", says: "VMI vm-cirros was scheduled to soft-reboot"},
	{line: anew, says: "booted anew", awaited: true},
	{line: "virtctl reset vm-cirros", says: "VMI vm-cirros was scheduled to reset"},
	{line: anew, says: "booted anew", awaited: true},
	{line: "virtctl restart vm-cirros", says: "VM vm-cirros was scheduled to restart"},
	{line: anew, says: "booted anew", awaited: true},
	{line: "virtctl stop vm-cirros", says: "VM vm-cirros was scheduled to stop"},
	{line: "virtctl stop vm-cirros", fails: true, says: "VM is not running", awaited: true},
	{line: "kubectl wait vm/vm-cirros --for=jsonpath='{.status.printableStatus}'=Stopped --timeout=5m", awaited: true},
	{line: "virtctl restart vm-cirros", fails: true, says: "Halted does not support manual restart requests"},
	{line: "virtctl start vm-cirros", says: "VM vm-cirros was scheduled to start"},
	{line: anew, says: "booted anew", awaited: true},

	{line: "virtctl start nobody", fails: true, says: `virtualmachines.kubevirt.io "nobody" not found`},
	{line: "virtctl migrate nobody", fails: true, says: `virtualmachines.kubevirt.io "nobody" not found`},
	{line: "virtctl console nobody", fails: true, says: `virtualmachineinstances.kubevirt.io "nobody" not found`},
}

// The messages about kinds that are not served.
const (
	noExport   = "VirtualMachineExport: not supported by Drydock: copy a disk with a DataVolume"
	noTemplate = "not supported by Drydock: write the machine's manifest with 'virtctl create vm'"
)

// The session must have every verb of the program.
func TestEachVerbWorksOrIsRefusedWithASentence(t *testing.T) {
	s := newShell(t)
	proxy := s.start(t, "kubectl -n kubevirt port-forward service/cdi-uploadproxy :443")
	s.env = append(s.env, "UPLOADPROXY=https://127.0.0.1:"+proxy.await(t, `127\.0\.0\.1:(\d+) ->`)[1], "PORT="+freePort(t))

	verbs := s.verbs(t, "")
	if len(verbs) == 0 {
		t.Fatal("virtctl --help lists no commands: the test does not understand it")
	}
	for _, verb := range verbs {
		tried := func(s step) bool { return strings.Contains(s.line+" ", "virtctl "+verb+" ") }
		if !slices.ContainsFunc(session, tried) {
			t.Errorf("virtctl %s is in no line of the session", verb)
		}
	}
	for _, step := range session {
		if !t.Run(step.line, func(t *testing.T) { s.do(t, step) }) && step.awaited {
			t.Fatal("the lines after this one need it")
		}
	}
}

// Commands about the program itself don't count.
func (s *shell) verbs(t *testing.T, path string) []string {
	t.Helper()
	help, err := s.run(t.Context(), "virtctl "+path+" --help")
	if err != nil {
		t.Fatalf("virtctl %s --help: %v\n%s", path, err, help)
	}
	_, list, _ := strings.Cut(help.answer, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var all []string
	for line := range strings.Lines(list) {
		name := strings.Fields(line)[0]
		if !slices.Contains([]string{"help", "completion", "options"}, name) {
			verb := strings.TrimSpace(path + " " + name)
			all = append(append(all, verb), s.verbs(t, verb)...)
		}
	}
	return all
}

// do types the step's line.
func (s *shell) do(t *testing.T, step step) {
	if step.with != nil {
		step.with(t, s.start(t, step.line))
		return
	}
	try := func() error {
		out, err := s.run(t.Context(), step.line)
		if wrong := step.wrong(out, err); wrong != nil {
			return fmt.Errorf("%w; it says\n%s", wrong, out)
		}
		return nil
	}
	if step.awaited {
		eventually(t, try)
	} else if err := try(); err != nil {
		t.Fatal(err)
	}
}

// eventually repeats try until it succeeds, because no event announces success.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	tick, deadline := time.NewTicker(pause), time.Now().Add(patience)
	defer tick.Stop()
	for err := try(); err != nil; err = try() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

func (s step) wrong(out said, err error) error {
	switch {
	case s.fails && err == nil:
		return fmt.Errorf("it succeeded, and must fail")
	case !s.fails && err != nil:
		return err
	case !regexp.MustCompile(s.says).MatchString(out.String()):
		return fmt.Errorf("it does not say %q", s.says)
	case !regexp.MustCompile(s.answers).MatchString(out.answer):
		return fmt.Errorf("its answer is not %q", s.answers)
	}
	return nil
}

func talks(turns ...string) func(*testing.T, *program) {
	return func(t *testing.T, p *program) {
		for turn := range slices.Chunk(turns, 2) {
			p.await(t, turn[0])
			p.types(t, turn[1])
		}
		rest, _ := io.ReadAll(p.screen) // until it ends
		if err := p.Wait(); err != nil {
			t.Errorf("it ended with %v; it says\n%s%s", err, p.printed, rest)
		}
	}
}

func greets(port, greeting string) func(*testing.T, *program) {
	return func(t *testing.T, p *program) {
		address, deadline := "127.0.0.1:"+p.await(t, port)[1], time.Now().Add(patience)
		var connection net.Conn
		eventually(t, func() (err error) { // some print the port before they listen
			connection, err = net.Dial("tcp", address)
			return err
		})
		defer connection.Close()
		if err := connection.SetDeadline(deadline); err != nil {
			t.Fatal(err)
		}
		said := make([]byte, len(greeting))
		if _, err := io.ReadFull(connection, said); err != nil || string(said) != greeting {
			t.Errorf("the port's first words are %q (%v), not %q", said, err, greeting)
		}
	}
}

// The port is outside the kernel's ephemeral range, so that it is still free when virtctl listens there.
func freePort(t *testing.T) string {
	t.Helper()
	const first, count = 12000, 20000
	var problem error
	for range 100 {
		port := strconv.Itoa(first + rand.N(count))
		var listener net.Listener
		if listener, problem = net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); problem == nil {
			_ = listener.Close()
			return port
		}
	}
	t.Fatalf("finding a free port: %v", problem)
	return ""
}
