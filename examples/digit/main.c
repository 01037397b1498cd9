/* Reads a digit: an image of 28 x 28 pixels, white on black, as a binary PGM file.

   python examples/digit/export_digit.py
   cc -O2 -o digit examples/digit/main.c digit.c -I . -lm
   ./digit digit.pgm */
#include "digit.h"

#include <math.h>
#include <stdio.h>

#define SIDE 28

static int read_image(const char *path, float *pixels)
{
    unsigned char bytes[SIDE * SIDE];
    int width = 0, height = 0, highest = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return 0;
    }
    int good = fscanf(file, "P5 %d %d %d", &width, &height, &highest) == 3 && fgetc(file) != EOF && width == SIDE &&
               height == SIDE && highest == 255 && fread(bytes, 1, sizeof bytes, file) == sizeof bytes;
    fclose(file);
    for (int i = 0; good && i < SIDE * SIDE; ++i) {
        pixels[i] = bytes[i] / 255.0f;
    }
    return good;
}

int main(int count, char **arguments)
{
    float pixels[DIGIT_INPUT_SIZE], scores[DIGIT_OUTPUT_SIZE];
    if (count != 2 || !read_image(arguments[1], pixels)) {
        fprintf(stderr, "usage: digit IMAGE.pgm, a binary PGM of %d x %d pixels with 255 greys\n", SIDE, SIDE);
        return 1;
    }
    digit_predict(pixels, scores);

    int best = 0;
    float sum = 0.0f;
    for (int i = 1; i < DIGIT_OUTPUT_SIZE; ++i) {
        best = scores[i] > scores[best] ? i : best;
    }
    for (int i = 0; i < DIGIT_OUTPUT_SIZE; ++i) {
        sum += expf(scores[i] - scores[best]);
    }
    printf("%d, with probability %.3f\n", best, 1.0f / sum);
    return 0;
}
