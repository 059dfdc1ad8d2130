// Command oracle asks the scheduling plugins of kube-scheduler what they think.
//
// It reads one cluster state per line of standard input and prints one line
// per state, in the order of the input. See README.md for both formats.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// request is one line of input: a cluster, and either one pod to explain or
// several to place one after the other.
type request struct {
	ID       json.Number       `json:"id"`
	Objects  []json.RawMessage `json:"objects"`
	Config   json.RawMessage   `json:"config"`
	Pod      string            `json:"pod"`
	Sequence []string          `json:"sequence"`
	Assume   []string          `json:"assume"`
}

// response is one line of output: an explanation for "pod", a list of them for
// "sequence", or what was wrong with the request.
type response struct {
	ID json.Number `json:"id"`
	*explanation
	Results []*explanation `json:"results,omitempty"`
	Error   string         `json:"error,omitempty"`
}

func main() {
	workers := flag.Int("workers", runtime.GOMAXPROCS(0), "states judged at the same time")
	flag.Parse()
	silence()
	metrics.Register()
	// States are small and short-lived: collect rarely.
	debug.SetGCPercent(400)
	if err := serve(os.Stdin, os.Stdout, max(*workers, 1)); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

// silence keeps klog off standard error: the plugins log each rejection that
// is an error, and states are made to provoke those.
func silence() {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("logtostderr", "false")
	_ = flags.Set("stderrthreshold", "FATAL")
	klog.SetOutput(io.Discard)
}

// serve judges states with a pool of workers and prints answers in the order
// of the questions. Output is flushed whenever no further answer is at hand,
// so that a caller may send one state and wait for its line.
func serve(in io.Reader, out io.Writer, workers int) error {
	pending := make(chan chan []byte, workers*4)
	slots := make(chan struct{}, workers)
	readErr := make(chan error, 1)
	go func() {
		defer close(pending)
		lines := bufio.NewReaderSize(in, 1<<20)
		for {
			line, err := lines.ReadBytes('\n')
			if len(line) > 1 {
				answer := make(chan []byte, 1)
				pending <- answer
				slots <- struct{}{}
				go func() {
					defer func() { <-slots }()
					answer <- respond(line)
				}()
			}
			if err != nil {
				if err != io.EOF {
					readErr <- err
				}
				return
			}
		}
	}()

	writer := bufio.NewWriterSize(out, 1<<20)
	for answer := range pending {
		if _, err := writer.Write(append(<-answer, '\n')); err != nil {
			return err
		}
		if len(pending) == 0 {
			if err := writer.Flush(); err != nil {
				return err
			}
		}
	}
	if err := writer.Flush(); err != nil {
		return err
	}
	select {
	case err := <-readErr:
		return err
	default:
		return nil
	}
}

// respond answers one line. A panic of a plugin becomes an error of that state
// alone.
func respond(line []byte) (answer []byte) {
	var req request
	defer func() {
		if p := recover(); p != nil {
			answer = encode(response{ID: req.ID, Error: fmt.Sprintf("panic: %v\n%s", p, debug.Stack())})
		}
	}()
	if err := json.Unmarshal(line, &req); err != nil {
		return encode(response{ID: "0", Error: fmt.Sprintf("request: %v", err)})
	}
	if req.ID == "" {
		req.ID = "0"
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	res, err := judge(ctx, &req)
	if err != nil {
		res = response{Error: err.Error()}
	}
	res.ID = req.ID
	return encode(res)
}

func encode(res response) []byte {
	line, err := json.Marshal(res)
	if err != nil {
		panic(err)
	}
	return line
}

func judge(ctx context.Context, req *request) (response, error) {
	cluster, err := newCluster(req.Objects)
	if err != nil {
		return response{}, err
	}
	scheduler, err := newScheduler(ctx, cluster, req.Config)
	if err != nil {
		return response{}, err
	}
	if len(req.Sequence) == 0 {
		verdict, _, err := scheduler.explain(ctx, req.Pod)
		return response{explanation: verdict}, err
	}
	if len(req.Assume) != len(req.Sequence) {
		return response{}, fmt.Errorf("assume: %d nodes for a sequence of %d pods", len(req.Assume), len(req.Sequence))
	}
	results := make([]*explanation, 0, len(req.Sequence))
	for i, name := range req.Sequence {
		verdict, state, err := scheduler.explain(ctx, name)
		if err != nil {
			return response{}, fmt.Errorf("sequence[%d]: %w", i, err)
		}
		results = append(results, verdict)
		node := req.Assume[i]
		if node == "" {
			continue
		}
		if verdict.Nodes[node] == nil || verdict.Nodes[node].Status != statusOK {
			// The caller sees the disagreement in the verdict; what follows it
			// would have no meaning.
			break
		}
		if err := scheduler.assume(ctx, state, name, node); err != nil {
			return response{}, fmt.Errorf("sequence[%d]: assume on %s: %w", i, node, err)
		}
	}
	return response{Results: results}, nil
}
