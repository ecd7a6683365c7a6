/* A program that has the CUDA runtime linked in, or loads it: what it does is recorded either way.

   gcc -O1 -I$CUDA/include static_runtime.c -o static_runtime $CUDA/lib64/libcudart_static.a -ldl -lrt -lpthread
   gcc -O1 -I$CUDA/include static_runtime.c -o shared_runtime -L$CUDA/lib64 -lcudart
   rankcheck record --out static -- ./static_runtime
   rankcheck record --out shared -- ./shared_runtime

   The wheel nvidia-cuda-runtime-cu12 has these files in nvidia/cuda_runtime/include and lib, but for crt/host_defines.h, which is of
   nvidia-cuda-nvcc-cu12. Each recording has the calls below in their order: those of the driver in the first, and those of the
   runtime in the second. Not here: NCCL, which links the runtime itself. */

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                                                                          \
    do {                                                                                   \
        cudaError_t code = (call);                                                         \
        if (code != cudaSuccess) {                                                         \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code));                  \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

static int called = 0;

static void arrived(void *data) { *(int *)data += 1; }

int main(void) {
    enum { ROWS = 16, WIDTH = 64, PITCH = 256, BYTES = ROWS * PITCH };
    char *fixed, *ordered, *managed, host[BYTES];
    cudaStream_t streams[2];
    cudaEvent_t event;
    TRY(cudaMalloc((void **)&fixed, BYTES));
    TRY(cudaMallocManaged((void **)&managed, BYTES, cudaMemAttachGlobal));
    TRY(cudaStreamCreateWithFlags(&streams[0], cudaStreamNonBlocking));
    TRY(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
    TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));

    TRY(cudaMallocAsync((void **)&ordered, BYTES, streams[0]));
    TRY(cudaMemsetAsync(ordered, 7, BYTES, streams[0]));
    TRY(cudaEventRecord(event, streams[0]));
    TRY(cudaStreamWaitEvent(streams[1], event, 0));
    TRY(cudaMemcpy2DAsync(fixed, PITCH, ordered, PITCH, WIDTH, ROWS, cudaMemcpyDeviceToDevice, streams[1]));
    TRY(cudaMemset2DAsync(managed, PITCH, 1, WIDTH, ROWS, streams[1]));
    struct cudaMemcpy3DParms box = {0};
    box.srcPtr = (struct cudaPitchedPtr){fixed, PITCH, WIDTH, ROWS / 2};
    box.dstPtr = (struct cudaPitchedPtr){managed, PITCH, WIDTH, ROWS / 2};
    box.extent = (struct cudaExtent){WIDTH, ROWS / 2, 2};
    box.kind = cudaMemcpyDeviceToDevice;
    TRY(cudaMemcpy3DAsync(&box, streams[1]));
    TRY(cudaLaunchHostFunc(streams[1], arrived, &called));
    TRY(cudaEventRecord(event, streams[1]));
    TRY(cudaStreamWaitEvent(streams[0], event, 0));
    TRY(cudaFreeAsync(ordered, streams[0]));

    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaGraphNode_t fill, copy, call;
    struct cudaMemsetParams filled = {.dst = fixed, .pitch = PITCH, .value = 3, .elementSize = 1, .width = WIDTH, .height = ROWS};
    struct cudaHostNodeParams function = {arrived, &called};
    TRY(cudaGraphCreate(&graph, 0));
    TRY(cudaGraphAddMemsetNode(&fill, graph, NULL, 0, &filled));
    TRY(cudaGraphAddMemcpyNode1D(&copy, graph, &fill, 1, managed, fixed, BYTES, cudaMemcpyDeviceToDevice));
    TRY(cudaGraphAddHostNode(&call, graph, &copy, 1, &function));
    TRY(cudaGraphInstantiateWithFlags(&executable, graph, 0));
    TRY(cudaGraphLaunch(executable, streams[0]));
    filled.dst = managed;
    TRY(cudaGraphExecMemsetNodeSetParams(executable, fill, &filled));
    TRY(cudaGraphLaunch(executable, streams[0]));
    TRY(cudaStreamSynchronize(streams[0]));
    TRY(cudaGraphExecDestroy(executable));
    TRY(cudaGraphDestroy(graph));
    TRY(cudaMemcpy2D(host, WIDTH, fixed, PITCH, WIDTH, ROWS, cudaMemcpyDeviceToHost));
    TRY(cudaDeviceSynchronize());
    TRY(cudaFree(fixed));
    TRY(cudaFree(managed));
    printf("called %d times, %d\n", called, host[0]);
    return called == 3 && host[0] == 3 ? 0 : 1;
}
