// Command kubelet-oracle admits pods as the kubelet does: its own Topology
// Manager with its own CPU, memory and device manager, on a machine that it is
// told of.
//
// It reads one command per line of standard input and prints one line for each.
// See README.md for both formats.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"syscall"

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
)

// command is one line of input; one of its members is set.
type command struct {
	// Open makes a machine; the one before it is forgotten.
	Open *machine `json:"open"`
	// Admit asks for the admission of a pod.
	Admit *v1.Pod `json:"admit"`
	// Remove lets a pod end, by UID.
	Remove string `json:"remove"`
	// Devices is the new list of a device plugin.
	Devices *deviceResource `json:"devices"`
}

// answer is one line of output.
type answer struct {
	Admitted bool   `json:"admitted"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
	State    *state `json:"state,omitempty"`
	// Error says that the command made no sense.
	Error string `json:"error,omitempty"`
}

// inside tells the process that it runs where /var/lib may be changed.
const inside = "KUBELET_ORACLE_INSIDE"

func main() {
	podLevel := flag.Bool("pod-level", false, "turn PodLevelResourceManagers on")
	flag.Parse()
	if os.Getenv(inside) == "" {
		os.Exit(enter())
	}
	if err := run(*podLevel); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet-oracle:", err)
		os.Exit(1)
	}
}

// enter runs this program again in namespaces of its own: the device manager
// writes below a directory that it will not be told, and that belongs to a real
// kubelet if there is one.
func enter() int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubelet-oracle:", err)
		return 1
	}
	again := exec.Command(self, os.Args[1:]...)
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.Env = append(os.Environ(), inside+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := again.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet-oracle: in namespaces of its own:", err)
		return 1
	}
	return 0
}

func run(podLevel bool) error {
	// Not below /var/lib/kubelet: that may not exist, and only root could make it.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("tmpfs", "/var/lib", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount a tmpfs on /var/lib: %w", err)
	}
	gates := map[string]bool{"CPUManagerPolicyAlphaOptions": true, "PodLevelResourceManagers": podLevel}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		return err
	}
	silence()
	debug.SetGCPercent(400)
	return serve(os.Stdin, os.Stdout)
}

// silence keeps klog off standard error: refusals are logged as errors.
func silence() {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("logtostderr", "false")
	_ = flags.Set("stderrthreshold", "FATAL")
	klog.SetOutput(io.Discard)
}

// serve answers commands one after the other.
func serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	writer := bufio.NewWriterSize(out, 1<<20)
	var node *kubelet
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			reply := respond(&node, line)
			encoded, err := json.Marshal(reply)
			if err != nil {
				return err
			}
			if _, err := writer.Write(append(encoded, '\n')); err != nil {
				return err
			}
			if err := writer.Flush(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// respond obeys one command. A panic of a manager is an answer too.
func respond(node **kubelet, line []byte) (reply answer) {
	defer func() {
		if p := recover(); p != nil {
			reply = answer{Error: fmt.Sprintf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	var order command
	if err := json.Unmarshal(line, &order); err != nil {
		return answer{Error: fmt.Sprintf("command: %v", err)}
	}
	ctx := context.Background()
	if order.Open != nil {
		if *node != nil {
			(*node).close()
		}
		opened, err := open(ctx, order.Open)
		if err != nil {
			return answer{Error: err.Error()}
		}
		*node = opened
		return answer{State: opened.state(ctx)}
	}
	if *node == nil {
		return answer{Error: "no machine is open"}
	}
	switch {
	case order.Admit != nil:
		reply = (*node).admit(ctx, order.Admit)
	case order.Remove != "":
		(*node).remove(order.Remove)
	case order.Devices != nil:
		if err := (*node).report(ctx, order.Devices); err != nil {
			return answer{Error: err.Error()}
		}
	default:
		return answer{Error: "command: nothing to do"}
	}
	reply.State = (*node).state(ctx)
	return reply
}
