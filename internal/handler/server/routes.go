package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/answer"
	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/handler/stream"
	"drydock.dev/drydock/internal/logs"
)

// route handles a request. An error becomes the answer; without one the route has answered.
type route func(m Machine, w http.ResponseWriter, r *http.Request) error

// Handler serves the routes of internal/contracts/nodeapi.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(method string, verb nodeapi.Verb, rest string, do route) {
		mux.HandleFunc(method+" "+routePrefix+string(verb)+rest, s.onMachine(do))
	}
	handle(http.MethodPut, nodeapi.Pause, "", action(Machine.Pause))
	handle(http.MethodPut, nodeapi.Unpause, "", action(Machine.Unpause))
	handle(http.MethodPut, nodeapi.SoftReboot, "", action(Machine.SoftReboot))
	handle(http.MethodPut, nodeapi.Reset, "", action(Machine.Reset))

	handle(http.MethodPut, nodeapi.Quiesce, "", quiesce)
	handle(http.MethodGet, nodeapi.Quiesce, "", held)
	handle(http.MethodPut, nodeapi.Release, "", release)

	handle(http.MethodGet, nodeapi.GuestOSInfo, "", query(Machine.GuestOSInfo))
	handle(http.MethodGet, nodeapi.UserList, "", query(Machine.UserList))
	handle(http.MethodGet, nodeapi.FilesystemList, "", query(Machine.FilesystemList))

	handle(http.MethodGet, nodeapi.Console, "", s.streams.limited(nodeapi.Console, s.console))
	handle(http.MethodGet, nodeapi.VNC, "", s.streams.limited(nodeapi.VNC, vnc))
	handle(http.MethodGet, nodeapi.Screenshot, "", s.screenshot)
	forward := s.streams.limited(nodeapi.PortForward, portForward)
	handle(http.MethodGet, nodeapi.PortForward, "/{port}", forward)
	handle(http.MethodGet, nodeapi.PortForward, "/{port}/{protocol}", forward)

	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer.Error(w, &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Message: fmt.Sprintf("virt-handler has no route %s %s", r.Method, r.URL.Path),
		}})
	})
	return mux
}

const routePrefix = "/v1/namespaces/{namespace}/virtualmachineinstances/{name}/"

func (s *Server) onMachine(do route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		namespace, name := r.PathValue("namespace"), r.PathValue("name")
		uid := types.UID(r.URL.Query().Get("uid"))
		if uid == "" {
			answer.Error(w, apierrors.NewBadRequest("the query parameter uid is missing: it must be the VMI's UID"))
			return
		}
		machine, away := s.machines.Lookup(namespace, name, uid)
		err := away
		if away == nil {
			// A migration that hands the guest over meanwhile makes a question fail. An action that fails may have
			// had its effect, which must not be repeated at the target, unless it was refused.
			if err = do(machine, w, r); err != nil && (r.Method == http.MethodGet || apierrors.IsConflict(err)) {
				_, away = s.machines.Lookup(namespace, name, uid)
			}
		}
		if away != nil {
			w.Header().Set(nodeapi.AwayHeader, "true")
		}
		if err != nil {
			logs.VMINamed(s.log, namespace, name, uid).V(1).Info("refused a request", "path", r.URL.Path, "reason", err.Error())
			answer.Error(w, err)
		}
	}
}

func action(do func(Machine, context.Context) error) route {
	return func(m Machine, w http.ResponseWriter, r *http.Request) error {
		if err := do(m, r.Context()); err != nil {
			return err
		}
		w.WriteHeader(http.StatusOK)
		return nil
	}
}

func query[T any](ask func(Machine, context.Context) (T, error)) route {
	return func(m Machine, w http.ResponseWriter, r *http.Request) error {
		object, err := ask(m, r.Context())
		if err != nil {
			return err
		}
		return answer.JSON(w, http.StatusOK, object)
	}
}

func (s *Server) console(m Machine, w http.ResponseWriter, r *http.Request) error {
	console, err := s.consoles.Open(r.Context(), m.ConsoleKey(), m.DialSerial)
	if err != nil {
		return err
	}
	client, err := stream.Accept(w, r, refuseUpgrade)
	if err != nil {
		return nil // refuseUpgrade has answered
	}
	console.Serve(r.Context(), client)
	return nil
}

func vnc(m Machine, w http.ResponseWriter, r *http.Request) error {
	return splice(w, r, "the screen", m.DialVNC)
}

func portForward(m Machine, w http.ResponseWriter, r *http.Request) error {
	port, err := strconv.ParseUint(r.PathValue("port"), 10, 16)
	if err != nil || port == 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("port %q: must be a number from 1 to 65535", r.PathValue("port")))
	}
	protocol := r.PathValue("protocol")
	switch protocol {
	case "":
		protocol = "tcp"
	case "tcp", "udp":
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("protocol %q: must be tcp or udp", protocol))
	}
	return splice(w, r, fmt.Sprintf("port %d/%s", port, protocol), func(ctx context.Context) (net.Conn, error) {
		return m.DialPort(ctx, protocol, int(port))
	})
}

// splice dials first, so that a failure is an HTTP answer.
func splice(w http.ResponseWriter, r *http.Request, what string, dial stream.Dial) error {
	conn, err := dial(r.Context())
	if err != nil {
		return fmt.Errorf("connecting to %s of the guest: %w", what, err)
	}
	client, err := stream.Accept(w, r, refuseUpgrade)
	if err != nil {
		return conn.Close() // refuseUpgrade has answered
	}
	stream.Splice(r.Context(), client, conn)
	return nil
}

func refuseUpgrade(w http.ResponseWriter, code int, reason error) {
	status := metav1.Status{Code: int32(code), Reason: metav1.StatusReasonBadRequest,
		Message: fmt.Sprintf("opening the stream: %v", reason)}
	answer.Error(w, &apierrors.StatusError{ErrStatus: status})
}
